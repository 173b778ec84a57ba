"""Which services share which GPUs, and over how many each is split: SeaLLM's placement. Pure."""
