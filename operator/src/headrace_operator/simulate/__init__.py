"""`headrace simulate`: what other scheduling policies would do to a service's own traffic, before switching.

A command for people, no part of the operator: it reads files, needs no cluster, and imports the simulator.
"""
