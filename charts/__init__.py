"""The Helm chart, and what makes those of its files that have a source elsewhere."""
