"""What goes wrong on the caller's connection, in our words, whichever driver says it."""

from ....errors import InvalidOption, StoreError, StoreUnavailable, WindlassError
from ..errors import state_of, translate

_PLACE = "the other end of your connection"
_FAILED = "25P02"
_IN_BETWEEN = ("40", "23505")
_DRIVERS = ("psycopg", "psycopg2", "asyncpg", "sqlalchemy", "django")
_ROOTS = frozenset({"Error", "DBAPIError", "InterfaceError", "InternalClientError", "PendingRollbackError"})
_BROKEN = frozenset({"OperationalError", "InterfaceError", "InternalClientError"})
_UNUSABLE = frozenset({"TransactionManagementError", "PendingRollbackError"})  # Django's, SQLAlchemy's


def in_our_words(error: BaseException) -> WindlassError | None:
    """The error to raise in place of a driver's; None for one that is not a driver's."""
    if isinstance(error, WindlassError):
        return None
    said = _said_by_driver(error)
    code = state_of(said)
    if code is None:
        return _of_the_driver(error, said)
    if code == _FAILED:
        return _failed(said)
    if code.startswith(_IN_BETWEEN):
        return StoreUnavailable(
            f"another transaction got in between ({_text(said)}): roll yours back and do all of it again; "
            f"at READ COMMITTED, Postgres's default, that happens less"
        )
    return translate(said, _PLACE)


def _failed(error: BaseException) -> InvalidOption:
    return InvalidOption(
        f"the transaction had failed before this ({_text(error)}): roll it back, or to a savepoint, and go on"
    )


def _text(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__


def _said_by_driver(error: BaseException) -> BaseException:
    """SQLAlchemy and Django wrap what the driver raised."""
    seen = error
    while state_of(seen) is None:
        inner = getattr(seen, "orig", None) or seen.__cause__
        if inner is None:
            return seen
        seen = inner
    return seen


def _of_the_driver(error: BaseException, said: BaseException) -> WindlassError | None:
    kinds = {
        kind.__name__
        for kind in (*type(error).__mro__, *type(said).__mro__)
        if kind.__module__.partition(".")[0] in _DRIVERS
    }
    if kinds.isdisjoint(_ROOTS) and not isinstance(said, OSError):
        return None
    if kinds & _UNUSABLE:
        return _failed(said)
    if kinds & _BROKEN or isinstance(said, OSError):
        return StoreUnavailable(
            f"your connection to Postgres broke or is not usable ({_text(said)}): nothing of its transaction "
            f"stands unless it was committed; connect again and do all of it again"
        )
    return StoreError(f"the driver of your connection refused a statement of windlass's: {_text(said)}")
