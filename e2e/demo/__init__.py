"""`make demo`: the whole of Headrace on a real cluster, and what a live change of policy does to a trace."""
