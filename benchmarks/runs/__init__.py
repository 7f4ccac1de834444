"""What a new process does for one measured run."""
