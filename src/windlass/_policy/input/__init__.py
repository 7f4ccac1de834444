"""Validate what callers pass: payloads, options, keys, traces, chains."""
