"""How benchmarks tell what they found: result files, pages, pictures and intervals."""
