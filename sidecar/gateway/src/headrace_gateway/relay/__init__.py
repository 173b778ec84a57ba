"""Streams that outlive their engine: a process beside each Envoy, between it and the engines.

    streams ─┬─► question: the request, as each engine gets it, signed with the gateway's key (signing)
             └─► journal: what of the answer the client has

Which engine goes on with the answer of a lost one is the picker's to choose, as for every request.
"""
