"""Turns: the engines of a group that share a GPU take it one step at a time.

A turn server (`server`, by the rules of `rules`) says whose turn it is; each engine asks it over TCP
(`member`). An engine keeps its turn until another asks for it, which costs it one look at a socket a step.
Turns are for latency, not for correctness: without a server every engine computes whenever it wants, and the
GPU divides its time among them as it always does.

SeaLLM, section 4.2, lets the service with the least priority value compute next [arXiv 2504.15720].
"""
