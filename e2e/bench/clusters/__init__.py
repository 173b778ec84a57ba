"""Whole clusters whose services share GPUs, or do not."""
