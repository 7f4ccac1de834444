"""History: durations as histograms, buckets of time, and the points that are read from them."""
