"""Services that share GPUs by turns, against GPUs of their own and other ways of sharing: simulated."""
