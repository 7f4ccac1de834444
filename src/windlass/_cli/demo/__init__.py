"""`windlass demo`: a shop's busy day with a worker killed in the middle, and the reckoning."""
