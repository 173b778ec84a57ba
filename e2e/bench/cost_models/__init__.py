"""Cost models of models and GPUs from measured times of single operators, for the catalogue of step times."""
