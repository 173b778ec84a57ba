"""Several pickers that all choose: what that costs balance, and what one that dies costs."""
