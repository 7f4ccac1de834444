"""Translate Postgres's and asyncpg's errors into windlass's, once, at the edge of the store."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from ...errors import InvalidPayload, SchemaMismatch, StoreError, StoreUnavailable, WindlassError

# Nothing was done: a serialisation failure, a deadlock, or a row that was on its way to the default
# partition of the history when that of its day was created. One that violates another constraint fails again.
_RETRYABLE = frozenset({"40001", "40P01", "23514"})

_DOWN = (
    "cannot connect to Postgres at {address} ({error}); check that it is running and that the URL is right"
)
_LOST = (
    "lost the connection to Postgres at {address} ({error}); the request may or may not have been carried out"
)
_READ_ONLY = (
    "Postgres at {address} is read-only ({error}); after a failover connect to the new primary, "
    "or name all hosts in the URL"
)
_FULL = "Postgres at {address} has no free connection slots ({error}); raise max_connections, or use a pooler"
_TIMEOUT = "Postgres at {address} cancelled a statement ({error}); check statement_timeout and blocking locks"
_LOCKED = (
    "timed out waiting for a lock in Postgres at {address} ({error}); "
    "look for a long-running transaction, then retry"
)
_OVERTAKEN = "Postgres at {address} kept rolling back because of concurrent transactions ({error}); retry"
_NO_SPACE = "Postgres at {address} is out of resources ({error}); nothing was lost; free some, then retry"
_STARTING = "Postgres at {address} is starting up or shutting down ({error}); retry"
_NO_TABLE = "windlass's schema at {address} is incomplete ({error}); run `windlass migrate`"
_NOT_POSTGRES = "the server at {address} does not speak the Postgres protocol ({error}); check host and port"
_DENIED = (
    "Postgres at {address} denied access ({error}); check user, password, database and the user's privileges"
)
_UNUSABLE = "cannot use Postgres at {address} with these settings ({error}); check the store's URL"
_NO_VALUE = (
    "Postgres at {address} cannot store a value ({error}); "
    "NUL characters, lone surrogates and numbers out of range are not allowed"
)
_OTHER = "Postgres at {address} failed: {error} (SQLSTATE {code})"

# By SQLSTATE or its class; the longer prefix first.
_BY_SQLSTATE: dict[str, tuple[type[WindlassError], str]] = {
    "22": (InvalidPayload, _NO_VALUE),
    "25006": (StoreUnavailable, _READ_ONLY),
    "53300": (StoreUnavailable, _FULL),
    "53": (StoreUnavailable, _NO_SPACE),
    "57014": (StoreUnavailable, _TIMEOUT),
    "57P01": (StoreUnavailable, _LOST),
    "57P05": (StoreUnavailable, _LOST),
    "57": (StoreUnavailable, _STARTING),
    "58": (StoreUnavailable, _NO_SPACE),
    "55P03": (StoreUnavailable, _LOCKED),
    "40": (StoreUnavailable, _OVERTAKEN),
    "08": (StoreUnavailable, _LOST),
    "25P03": (StoreUnavailable, _LOST),  # idle in transaction for too long
    "25P04": (StoreUnavailable, _LOST),
    "28": (StoreError, _DENIED),
    "3D000": (StoreError, _DENIED),
    "42501": (StoreError, _DENIED),
    "42P01": (SchemaMismatch, _NO_TABLE),
    "42703": (SchemaMismatch, _NO_TABLE),
    "3F000": (SchemaMismatch, _NO_TABLE),
}

_CONFIGURATION = (
    asyncpg.ClientConfigurationError,
    asyncpg.UnsupportedClientFeatureError,
    asyncpg.UnsupportedServerFeatureError,
)
# Values that the driver cannot encode. Nothing was sent, and retrying cannot help.
_BAD_VALUE = (asyncpg.DataError, OverflowError, UnicodeEncodeError)
_BROKEN = (asyncpg.InterfaceError, asyncpg.InternalClientError, TimeoutError, asyncio.IncompleteReadError)


@contextmanager
def translated_errors(address: str) -> Iterator[None]:
    """Raise windlass's errors in place of the driver's."""
    try:
        yield
    except (
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
        OSError,
        TimeoutError,
        asyncio.IncompleteReadError,
        *_BAD_VALUE,
    ) as error:
        raise translate(error, address) from error


def translate(error: BaseException, address: str) -> WindlassError:
    """Return the error to raise in place of a driver's, which may be asyncpg's or another's."""
    code = state_of(error)
    if isinstance(error, _BAD_VALUE):
        return InvalidPayload(_NO_VALUE.format(address=address, error=error))
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return StoreUnavailable(
            _READ_ONLY.format(address=address, error="it is a standby, or configured as read-only")
        )
    if isinstance(error, asyncpg.ProtocolError):
        return StoreError(_NOT_POSTGRES.format(address=address, error=error))
    if isinstance(error, _CONFIGURATION):
        return StoreError(_UNUSABLE.format(address=address, error=error))
    if code is None:
        # Not from the server: a broken socket, a time-out of our own, an unknown host.
        text = str(error) or type(error).__name__
        lost = isinstance(error, _BROKEN)
        return StoreUnavailable((_LOST if lost else _DOWN).format(address=address, error=text))
    for prefix, (kind, message) in _BY_SQLSTATE.items():
        if code.startswith(prefix):
            return kind(message.format(address=address, error=error, code=code))
    return StoreError(_OTHER.format(address=address, error=error, code=code))


def state_of(error: BaseException) -> str | None:
    """Return the error's SQLSTATE, whichever driver raised it; None if it did not come from the server."""
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return code if isinstance(code, str) else None


def is_retryable(error: BaseException) -> bool:
    """Whether a concurrent transaction may be why this one was rolled back, so that a retry may succeed."""
    return state_of(error) in _RETRYABLE


def leaves_unanswered(error: BaseException) -> bool:
    """Whether the statement may still be running: its caller was cancelled or timed out."""
    return isinstance(error, (asyncio.CancelledError, TimeoutError, GeneratorExit))


def means_reconnect(error: BaseException) -> bool:
    """Whether the other connections have probably broken too, as after a restart or failover."""
    code = state_of(error)
    if isinstance(error, _BAD_VALUE):
        return False
    if code is None:
        return isinstance(error, (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError))
    return code == "25006" or code.startswith(("08", "57P0"))


def means_next_host(error: BaseException) -> bool:
    if isinstance(error, (OSError, asyncpg.InternalClientError)):
        return True
    return (state_of(error) or "").startswith(("08", "53", "57"))
