"""Reports that come in and go out: engines' load to the fleets, and what became of a route to its status."""
