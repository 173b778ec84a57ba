"""Slices and moves on three real engines behind the real gateway, beside what is simulated of them."""
