"""Join the caller's transaction: detect the driver, one file a driver, and what runs on the connection."""
