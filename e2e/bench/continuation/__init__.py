"""Generations that are cut and resumed elsewhere: what clients get must be what they would have got."""
