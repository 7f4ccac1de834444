"""What a freshly started process does for one measured run."""
