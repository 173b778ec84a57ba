"""From what is observed to what is done and told: pure functions, and memory without input or output."""
