"""Imported before vLLM: what vLLM logs about this machine says nothing of a simulation."""

import logging

logging.disable(logging.WARNING)
