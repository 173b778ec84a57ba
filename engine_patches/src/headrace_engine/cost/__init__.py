"""How long a model step takes on a GPU: published fits by name, operator tables, and what a fit must offer.

Standard library only: the sidecar fits such a model live, the simulator and the operator's command use them.
"""
