"""The parts of the benchmark: each runs its variants in turn, round after round."""
