"""What watches the runs of a worker from a thread: a blocked event loop, and handlers that do not stop."""
