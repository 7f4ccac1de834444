"""The store on NATS JetStream: our SQLite store, replicated by a stream that is its log."""

from .store import JetStreamStore

__all__ = ["JetStreamStore"]
