"""The worker: claims tasks, runs their handlers and settles the outcomes."""
