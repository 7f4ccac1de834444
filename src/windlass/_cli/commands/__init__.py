"""One module per command or group; imported when it is run."""
