"""The HTTP server: uvicorn with bounded connections."""
