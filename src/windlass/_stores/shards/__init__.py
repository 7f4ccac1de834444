"""Several stores as one: tasks are routed to shards by their queue, or by tenant within a queue."""

from .store import ShardedStore

__all__ = ["ShardedStore"]
