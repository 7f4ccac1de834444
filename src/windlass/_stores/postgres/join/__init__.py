"""Join the caller's transaction: detect the driver, one file per driver, and what runs on the connection."""
