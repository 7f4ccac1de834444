"""What operators ask and do about many tasks at once: actions in batches, failures, export."""
