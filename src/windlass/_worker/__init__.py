"""The worker: claims tasks, runs their handlers, settles what became of them."""
