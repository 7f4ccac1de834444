"""Postgres's errors in our words, translated once, at the edge: what happened, where, what to do."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from ...errors import InvalidPayload, SchemaMismatch, StoreError, StoreUnavailable, WindlassError

_RETRYABLE = frozenset({"40001", "40P01"})  # serialization failure, deadlock: nothing was done

_DOWN = "Postgres at {place} cannot be reached ({error}): see that it runs and that the address is right"
_LOST = "the connection to Postgres at {place} broke ({error}): whether the request was done is not known"
_READ_ONLY = (
    "Postgres at {place} takes no writes ({error}): after a failover connect to the new primary; "
    "a URL may name several hosts"
)
_FULL = "Postgres at {place} has no free connection ({error}): raise max_connections, or use a pooler"
_TIMEOUT = "Postgres at {place} cancelled a request ({error}): see statement_timeout, and what it waited for"
_LOCKED = "Postgres at {place} kept a lock for too long ({error}): look for an open transaction; try again"
_OVERTAKEN = "Postgres at {place} gave way to other transactions again and again ({error}): try again"
_NO_SPACE = "Postgres at {place} is out of resources ({error}): nothing was lost; it goes on when there are"
_STARTING = "Postgres at {place} is starting or shutting down ({error}): try again"
_NO_TABLE = "the database at {place} lacks a part of windlass's schema ({error}): run `windlass migrate`"
_STRANGER = "what answers at {place} does not speak Postgres's protocol ({error}): see host and port"
_REFUSED = "Postgres at {place} refuses us ({error}): see user, password, database and their rights"
_UNUSABLE = "Postgres at {place} cannot be used like this ({error}): see the store's URL"
_NO_VALUE = (
    "Postgres at {place} cannot keep a value ({error}): no NUL, no lone surrogate, no number too large"
)
_OTHER = "Postgres failed at {place}: {error} ({code})"

# By SQLSTATE, or by its class; the longer one first.
_FAULTS: dict[str, tuple[type[WindlassError], str]] = {
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
    "28": (StoreError, _REFUSED),
    "3D000": (StoreError, _REFUSED),
    "42501": (StoreError, _REFUSED),
    "42P01": (SchemaMismatch, _NO_TABLE),
    "42703": (SchemaMismatch, _NO_TABLE),
    "3F000": (SchemaMismatch, _NO_TABLE),
}

_CONFIGURATION = (
    asyncpg.ClientConfigurationError,
    asyncpg.UnsupportedClientFeatureError,
    asyncpg.UnsupportedServerFeatureError,
)
# What the driver finds that it cannot send. Nothing was asked, and trying again cannot help.
_OF_VALUE = (asyncpg.DataError, OverflowError, UnicodeEncodeError)
_BROKEN = (asyncpg.InterfaceError, asyncpg.InternalClientError, TimeoutError, asyncio.IncompleteReadError)


@contextmanager
def told(place: str) -> Iterator[None]:
    """Raise what goes wrong within in our words."""
    try:
        yield
    except (
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
        OSError,
        TimeoutError,
        asyncio.IncompleteReadError,
        *_OF_VALUE,
    ) as error:
        raise translate(error, place) from error


def translate(error: BaseException, place: str) -> WindlassError:
    """The error to raise in place of the driver's."""
    code = state_of(error)
    if isinstance(error, _OF_VALUE):
        return InvalidPayload(_NO_VALUE.format(place=place, error=error))
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return StoreUnavailable(_READ_ONLY.format(place=place, error="it is a standby, or set to read only"))
    if isinstance(error, asyncpg.ProtocolError):
        return StoreError(_STRANGER.format(place=place, error=error))
    if isinstance(error, _CONFIGURATION):
        return StoreError(_UNUSABLE.format(place=place, error=error))
    if code is None:
        # No answer came: a broken socket, a time-out of our own, a host that is not there.
        text = str(error) or type(error).__name__
        lost = isinstance(error, _BROKEN)
        return StoreUnavailable((_LOST if lost else _DOWN).format(place=place, error=text))
    for prefix, (kind, message) in _FAULTS.items():
        if code.startswith(prefix):
            return kind(message.format(place=place, error=error, code=code))
    return StoreError(_OTHER.format(place=place, error=error, code=code))


def state_of(error: BaseException) -> str | None:
    """The error's SQLSTATE, whichever driver raised it; None for one that is not the server's."""
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return code if isinstance(code, str) else None


def is_retryable(error: BaseException) -> bool:
    """Whether the server undid everything for no fault of ours, so that doing it again may succeed."""
    return state_of(error) in _RETRYABLE


def leaves_unanswered(error: BaseException) -> bool:
    """Whether a statement may still be under way: its caller was cancelled, or stopped waiting."""
    return isinstance(error, (asyncio.CancelledError, TimeoutError, GeneratorExit))


def means_reconnect(error: BaseException) -> bool:
    """Whether the other connections are likely to be in the same trouble: a restart, a failover."""
    code = state_of(error)
    if isinstance(error, _OF_VALUE):
        return False
    if code is None:
        return isinstance(error, (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError))
    return code == "25006" or code.startswith(("08", "57P0"))


def means_next_host(error: BaseException) -> bool:
    """Whether another host may serve us better than the one that failed like this."""
    if isinstance(error, (OSError, asyncpg.InternalClientError)):
        return True
    return (state_of(error) or "").startswith(("08", "53", "57"))
