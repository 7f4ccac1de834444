"""What is measured: each part runs its variants in turn, round after round."""
