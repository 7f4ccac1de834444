"""What people ask and do about tasks: batches, failures, export, waiting for results; why one is not run."""
