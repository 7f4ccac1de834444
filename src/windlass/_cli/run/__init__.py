"""Commands that run until they are stopped: worker, keeper, serve, up."""
