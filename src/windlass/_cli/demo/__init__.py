"""`windlass demo`: a busy shop with a killed worker, and proof that no task was lost."""
