"""Connections to Redis: address, client, scripts."""
