"""SCLS as published, on simulated workers that batch statically: its claims, and what we find of them."""
