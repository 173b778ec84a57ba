"""What a hostile client can do to the gateway."""
