"""Services that mode Auto moves on a running cluster: how long it takes, and where they end."""
