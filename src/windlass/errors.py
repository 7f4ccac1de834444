"""Every error that windlass raises, in one tree. The first level says who can fix it.

    WindlassError
    ├─ UsageError        the call is wrong: fix the code
    │  ├─ InvalidPayload      the payload, a result or a raw document is not valid JSON
    │  ├─ InvalidOption       an option, name, duration or setting is invalid
    │  ├─ UnknownTaskType     this app declares no such type
    │  └─ NotSupported        this store lacks the capability
    ├─ Refused           valid, but not possible in the present state
    │  ├─ DuplicateTask       an equal task has not ended, or was enqueued within its period
    │  ├─ DuplicateKey        the API key was created before, with the same idempotency key
    │  ├─ IdempotencyConflict the idempotency key belongs to a different request
    │  ├─ QuotaExceeded       the tenant has stored as much as its quota allows
    │  ├─ Conflict            the record was changed by someone else meanwhile
    │  ├─ TaskFinished        the task has already ended
    │  ├─ LeaseLost           the lease has ended: the task was claimed again, or settled
    │  └─ SessionLost         the worker's session has ended; open a new one
    ├─ NotFound          no such task, queue or worker
    ├─ NoResult          the task has no result
    │  ├─ TaskDead            it died; the message is its last error
    │  ├─ TaskCancelled       it was cancelled
    │  └─ NotFinished         it did not end within the timeout (also a TimeoutError)
    ├─ LifespanFailed    a lifespan of the app failed when its worker started, or ended while it ran
    └─ StoreError        the store failed; `.transient` says whether a retry can help
       ├─ StoreUnavailable    unreachable, busy or full: transient
       └─ SchemaMismatch      its schema is newer or older than this version

Each class has one `code`: the HTTP problem type, the word in the CLI's error line, the anchor in the docs.
It is the name of the class in kebab case, `invalid-payload`; subclasses elsewhere keep that of their parent.
"""

import re
from typing import ClassVar


class WindlassError(Exception):
    """The root of all errors that windlass raises."""

    code: ClassVar[str] = "error"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__ == __name__ and "code" not in vars(cls):
            cls.code = re.sub(r"(?<!^)([A-Z])", r"-\1", cls.__name__).lower()


class UsageError(WindlassError):
    """The call is wrong; the same call will fail again."""

    code = "usage"


class InvalidPayload(UsageError):
    """Not valid as JSON. `pointer` is the JSON Pointer (RFC 6901) of the invalid value."""

    def __init__(self, message: str, *, pointer: str = "") -> None:
        super().__init__(message)
        self.pointer = pointer


class InvalidOption(UsageError):
    """An option, a name, a duration or a setting is invalid."""


class UnknownTaskType(UsageError):
    """The app declares no task type of that name."""


class NotSupported(UsageError):
    """This store lacks the capability."""


class Refused(WindlassError):
    """Valid, but not possible in the present state."""


class DuplicateTask(Refused):
    """A task with the same fingerprint has not ended, or was enqueued lately; `standing` is its id."""

    def __init__(self, message: str, *, standing: str) -> None:
        super().__init__(message)
        self.standing = standing


class DuplicateKey(Refused):
    """The API key was created before, with the same idempotency key; `standing` is its id."""

    def __init__(self, message: str, *, standing: str) -> None:
        super().__init__(message)
        self.standing = standing


class IdempotencyConflict(Refused):
    """The idempotency key already belongs to another request; `standing` is the id of its task or API key."""

    def __init__(self, message: str, *, standing: str) -> None:
        super().__init__(message)
        self.standing = standing


class QuotaExceeded(Refused):
    """The tenant has stored as much as its quota allows. Raised by `windlass serve`; nothing was stored."""


class Conflict(Refused):
    """The record is not as expected: someone else changed it meanwhile. Read it again and retry."""


class TaskFinished(Refused):
    """The task has already ended."""


class LeaseLost(Refused):
    """The lease is no longer valid; nothing was changed."""


class SessionLost(Refused):
    """The worker's session has expired or was never opened; other workers may hold its leases."""


class NotFound(WindlassError):
    """The store has no such task, queue, worker or record."""


class NoResult(WindlassError):
    """The task has no result."""


class TaskDead(NoResult):
    """The task died; the message is its last error."""


class TaskCancelled(NoResult):
    """The task was cancelled before it could complete."""


class NotFinished(NoResult, TimeoutError):
    """The task did not end within the timeout; it continues."""


class LifespanFailed(WindlassError):
    """A lifespan of the app failed when its worker started, or ended while it ran."""


class StoreError(WindlassError):
    """The store failed. `transient` says whether a retry can help."""

    transient: ClassVar[bool] = False


class StoreUnavailable(StoreError):
    """The store is unreachable, busy or full; retry later."""

    transient = True


class SchemaMismatch(StoreError):
    """The store's schema does not match this version: migrate the store or upgrade windlass."""
