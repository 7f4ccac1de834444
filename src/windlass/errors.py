"""Every error windlass raises, in one tree. The first level answers: whose move is it?

    WindlassError
    ├─ UsageError        the calling program is wrong: fix the code
    │  ├─ InvalidPayload      the payload, a result or a raw document is not acceptable JSON
    │  ├─ InvalidOption       an option, name, duration or setting is not acceptable
    │  ├─ UnknownTaskType     no such type is declared on this app
    │  └─ NotSupported        this store cannot do that
    ├─ Refused           understood, and not allowed now
    │  ├─ DuplicateTask       a task with this fingerprint stands
    │  ├─ IdempotencyConflict this idempotency key was used for something else
    │  ├─ TaskFinished        the task has already ended
    │  ├─ LeaseLost           the run's lease has ended: the task is another's, or settled
    │  └─ SessionLost         the worker's session has ended; open a new one
    ├─ NotFound          there is no such task, queue, worker
    ├─ NoResult          the task has no result to give
    │  ├─ TaskDead            it died; the error says of what
    │  ├─ TaskCancelled       it was cancelled
    │  └─ NotFinished         it had not ended in the time allowed (also a TimeoutError)
    └─ StoreError        the store failed; `.transient` says whether trying again can help
       ├─ StoreUnavailable    unreachable, busy, full: transient
       └─ SchemaMismatch      its schema is newer or older than this code

Each class has one `code`: the HTTP problem type, the word in the CLI's error line, the anchor in the docs.
"""

from typing import ClassVar


class WindlassError(Exception):
    """The root of all errors windlass raises."""

    code: ClassVar[str] = "error"


class UsageError(WindlassError):
    """The calling program is wrong; calling again with the same values will fail again."""

    code = "usage"


class InvalidPayload(UsageError):
    """Not acceptable as JSON. `pointer` is the JSON pointer (RFC 6901) of the offending place."""

    code = "invalid-payload"

    def __init__(self, message: str, *, pointer: str = "") -> None:
        super().__init__(message)
        self.pointer = pointer


class InvalidOption(UsageError):
    """An option, a name, a duration or a setting is not acceptable."""

    code = "invalid-option"


class UnknownTaskType(UsageError):
    """No task type of that name is declared on this app."""

    code = "unknown-task-type"


class NotSupported(UsageError):
    """This store lacks the capability; it refuses rather than pretend."""

    code = "not-supported"


class Refused(WindlassError):
    """Understood, and not allowed as things stand."""

    code = "refused"


class DuplicateTask(Refused):
    """A task with the same fingerprint has not ended yet; `standing` is its id."""

    code = "duplicate-task"

    def __init__(self, message: str, *, standing: str) -> None:
        super().__init__(message)
        self.standing = standing


class IdempotencyConflict(Refused):
    """The idempotency key already belongs to a different request; `standing` is that task's id."""

    code = "idempotency-conflict"

    def __init__(self, message: str, *, standing: str) -> None:
        super().__init__(message)
        self.standing = standing


class TaskFinished(Refused):
    """The task has ended, and an end is final."""

    code = "task-finished"


class LeaseLost(Refused):
    """The lease that a run was granted holds no longer; what it asked for was not done."""

    code = "lease-lost"


class SessionLost(Refused):
    """The worker's session has expired or was never opened; its leases may belong to others by now."""

    code = "session-lost"


class NotFound(WindlassError):
    """There is no such thing in the store."""

    code = "not-found"


class NoResult(WindlassError):
    """The task has no result to give."""

    code = "no-result"


class TaskDead(NoResult):
    """The task died; the message is its last error."""

    code = "task-dead"


class TaskCancelled(NoResult):
    """The task was cancelled before it could complete."""

    code = "task-cancelled"


class NotFinished(NoResult, TimeoutError):
    """The task had not ended within the time allowed; it goes on regardless."""

    code = "not-finished"


class StoreError(WindlassError):
    """The store failed. `transient` says whether trying again can help."""

    code = "store-error"
    transient: ClassVar[bool] = False


class StoreUnavailable(StoreError):
    """The store cannot be reached, is busy or is full: try again later."""

    code = "store-unavailable"
    transient = True


class SchemaMismatch(StoreError):
    """The store's schema does not fit this code: migrate one or upgrade the other."""

    code = "schema-mismatch"
