"""Translate redis-py's errors into windlass's, once, at the edge of the store."""

from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions

from ....errors import StoreError, StoreUnavailable
from ...pool import PoolExhausted

_DENIED = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)
_NOT_NOW = (
    exceptions.BusyLoadingError,
    exceptions.ClusterError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
    exceptions.AskError,
    exceptions.RedisClusterException,
)


class NoPrimaryError(exceptions.ConnectionError):
    """No Sentinel, or no node of the Cluster, names a primary."""


@contextmanager
def translated_errors(address: str) -> Iterator[None]:
    """Raise windlass's errors in place of the driver's."""
    try:
        yield
    except (exceptions.RedisError, OSError, TimeoutError) as error:
        raise translated(error, address) from error


def translated(error: Exception, address: str) -> StoreError:
    """Return windlass's error for one of the driver's."""
    if isinstance(error, _DENIED):
        return StoreError(f"Redis at {address} denied access ({error}); check user, password and ACL")
    if isinstance(error, PoolExhausted):
        return StoreUnavailable(f"no connection to Redis at {address} is free: {error}")
    if isinstance(error, _NOT_NOW):
        return StoreUnavailable(f"Redis at {address} is not ready ({error}); retry")
    if isinstance(error, exceptions.ReadOnlyError):
        return StoreUnavailable(
            f"Redis at {address} is a read-only replica ({error}); connect to the primary, "
            f"or use redis+sentinel:// or redis+cluster://"
        )
    if isinstance(error, exceptions.OutOfMemoryError) or "OOM" in str(error):
        return StoreUnavailable(
            f"Redis at {address} has reached maxmemory ({error}); no task was added; raise it, or prune"
        )
    if isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError | OSError | TimeoutError):
        reason = str(error) or type(error).__name__
        if isinstance(error, NoPrimaryError) or "connecting to" in reason:
            return StoreUnavailable(f"cannot connect to Redis at {address}: {reason}; is it running there?")
        return StoreUnavailable(
            f"lost or could not open the connection to Redis at {address} ({reason}); "
            f"the request may or may not have been carried out"
        )
    if str(error).startswith(("MISCONF", "NOREPLICAS", "BUSY", "UNKILLABLE", "MASTERDOWN")):
        return StoreUnavailable(f"Redis at {address} cannot write at present ({error}); retry")
    return StoreError(f"Redis at {address} failed: {error}")
