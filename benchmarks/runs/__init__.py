"""The programs of the processes that run the measurements."""
