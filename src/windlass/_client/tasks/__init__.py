"""What people ask and do about tasks: actions in batches, failures, export; why one is not run."""
