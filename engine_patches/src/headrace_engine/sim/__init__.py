"""The real vLLM scheduler, with our adapter, on a virtual clock: no model, no worker, no wall-clock time."""
