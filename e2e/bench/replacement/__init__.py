"""Whether it pays to move services as their traffic changes over a day. Simulated."""
