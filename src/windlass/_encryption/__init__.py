"""Encryption at rest: secret fields are encrypted before a store gets them, and decrypted when read."""
