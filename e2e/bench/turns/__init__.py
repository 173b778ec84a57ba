"""Turns of engines that share a GPU: what they cost, what they gain, and what happens when somebody fails."""
