"""Translate the errors of any driver on the caller's connection into windlass's."""

from collections.abc import Iterator
from contextlib import contextmanager

from ....errors import InvalidOption, StoreError, StoreUnavailable, WindlassError
from ..errors import state_of, translate

_ADDRESS = "the other end of your connection"
_ABORTED = "25P02"
_CONFLICT = ("40", "23505")
_DRIVERS = ("psycopg", "psycopg2", "asyncpg", "sqlalchemy", "django")
_ROOTS = frozenset({"Error", "DBAPIError", "InterfaceError", "InternalClientError", "PendingRollbackError"})
_BROKEN = frozenset({"OperationalError", "InterfaceError", "InternalClientError"})
_UNUSABLE = frozenset({"TransactionManagementError", "PendingRollbackError"})  # Django's, SQLAlchemy's


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise windlass's errors in place of any driver's."""
    try:
        yield
    except Exception as error:
        translated = _translated(error)
        if translated is None:
            raise
        raise translated from error


def _translated(error: BaseException) -> WindlassError | None:
    if isinstance(error, WindlassError):
        return None
    cause = _driver_error(error)
    code = state_of(cause)
    if code is None:
        return _client_error(error, cause)
    if code == _ABORTED:
        return _aborted(cause)
    if code.startswith(_CONFLICT):
        return StoreUnavailable(
            f"a concurrent transaction conflicts with yours ({_text(cause)}); roll back and retry all of it; "
            f"conflicts are rarer at READ COMMITTED, Postgres's default"
        )
    return translate(cause, _ADDRESS)


def _aborted(error: BaseException) -> InvalidOption:
    return InvalidOption(
        f"the transaction had already failed ({_text(error)}); roll it back, or to a savepoint, and retry"
    )


def _text(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__


def _driver_error(error: BaseException) -> BaseException:
    """Return the driver's error, which SQLAlchemy and Django wrap in their own."""
    seen = error
    while state_of(seen) is None:
        inner = getattr(seen, "orig", None) or seen.__cause__
        if inner is None:
            return seen
        seen = inner
    return seen


def _client_error(error: BaseException, cause: BaseException) -> WindlassError | None:
    kinds = {
        kind.__name__
        for kind in (*type(error).__mro__, *type(cause).__mro__)
        if kind.__module__.partition(".")[0] in _DRIVERS
    }
    if kinds.isdisjoint(_ROOTS) and not isinstance(cause, OSError):
        return None
    if kinds & _UNUSABLE:
        return _aborted(cause)
    if kinds & _BROKEN or isinstance(cause, OSError):
        return StoreUnavailable(
            f"your connection to Postgres broke or is unusable ({_text(cause)}); unless its transaction was "
            f"committed it is rolled back; reconnect and retry all of it"
        )
    return StoreError(f"the driver of your connection rejected a statement of windlass: {_text(cause)}")
