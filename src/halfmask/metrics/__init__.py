"""How good a model is, scored as the benchmarks score."""
