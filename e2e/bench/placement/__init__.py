"""The search for placement plans: how long it takes, how good its plans and its estimates are."""
