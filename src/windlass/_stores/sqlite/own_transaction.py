"""A transaction on a connection of its own: a handler's writes and the end of its task, together.

A thread waits for the file lock, begins the transaction and ends it; the caller runs statements in any
thread. All other writes wait while it is open, so it is limited to a few seconds.
"""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import NoReturn

from ...errors import StoreUnavailable, UsageError
from ..forks import never_free
from .connection.commits import GAP_SHARE, MAX_GAP_SECONDS
from .connection.errors import translated_errors
from .connection.file_lock import FileLock
from .connection.open import check_in_place, connect_as
from .connection.threads import DEADLINE_SECONDS, uncancellable
from .transaction import Wakes, begin

MAX_OPEN_SECONDS = 5.0
"""How long a block may keep the file locked. Every write of every process waits meanwhile, heartbeats too:
this is well below their deadline, and below the ten seconds that a connection without the file lock waits."""


class OwnConnection(sqlite3.Connection):
    """A connection that can do anything except end its transaction."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]  # whatever sqlite3.connect passes
        self.wakes = Wakes()
        self._keeper = threading.get_ident()  # only this thread may end the transaction

    def guard(self) -> None:
        """Allow only this thread to end the transaction, and no other to be begun."""
        self.execute("SAVEPOINT windlass_own")
        # If SQLite itself rolls back, the next write tries to begin a transaction, and fails.
        self.isolation_level = "IMMEDIATE"
        self.set_authorizer(self._allows)

    def _allows(self, action: int, _: str | None, name: str | None, *__: object) -> int:
        ends = action == sqlite3.SQLITE_TRANSACTION or (
            action == sqlite3.SQLITE_SAVEPOINT and name == "windlass_own"
        )
        mine = threading.get_ident() == self._keeper
        return sqlite3.SQLITE_DENY if ends and not mine else sqlite3.SQLITE_OK

    def shut(self) -> None:
        """Close it, once it is no longer used."""
        super().close()

    def _refuse(self) -> NoReturn:
        raise UsageError(
            "ctx.transaction() ends its own transaction: leaving the block commits, an exception rolls back"
        )

    commit = rollback = close = __enter__ = _refuse


def over(path: Path) -> StoreUnavailable:
    """Return the error for use of a transaction that has been rolled back."""
    return StoreUnavailable(
        f"the transaction on {path} has already been rolled back, by SQLite after an error or because it was "
        f"open too long; none of its writes were kept"
    )


class OwnTransaction:
    """A transaction for one `async with` or `with` block."""

    def __init__(
        self,
        path: Path,
        ready: "Future[None]",
        transaction_lock: threading.Lock,
        wake: Callable[[Wakes], None],
    ) -> None:
        self._path = path
        self._ready = ready  # done when the schema exists
        self._transaction_lock = transaction_lock  # held by the one that waits for the file lock
        self._wake = wake
        self._file_lock = FileLock()
        self._connection: OwnConnection | None = None
        self._begun: Future[OwnConnection] = Future()
        self._commit: Future[bool] = Future()
        self._ended: Future[BaseException | None] = uncancellable()  # with the reason if it was not committed

    # -- the caller's side ---------------------------------------------------------------------------

    async def __aenter__(self) -> sqlite3.Connection:
        self._start()
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                return await asyncio.wrap_future(self._begun)
        except BaseException as error:
            self._give_up(error)
            raise

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._commit.set_result(kind is None)
        await asyncio.wait([asyncio.wrap_future(self._ended)], timeout=DEADLINE_SECONDS)
        self._raise_failure(kind)

    def __enter__(self) -> sqlite3.Connection:
        self._start()
        try:
            return self._begun.result(DEADLINE_SECONDS)
        except BaseException as error:
            self._give_up(error)
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._commit.set_result(kind is None)
        wait([self._ended], timeout=DEADLINE_SECONDS)
        self._raise_failure(kind)

    def _start(self) -> None:
        threading.Thread(target=self._run, name="windlass-transaction", daemon=True).start()

    def _give_up(self, error: BaseException) -> None:
        """Roll back at once if it still begins. Raises StoreUnavailable in place of a timeout."""
        if not self._begun.cancel():
            self._commit.set_result(False)
        if isinstance(error, TimeoutError):
            raise StoreUnavailable(
                f"timed out after {DEADLINE_SECONDS:g} s waiting to begin a transaction on {self._path}: "
                f"look for a process that holds its lock, or for too many transactions at once; nothing was "
                f"written"
            ) from error

    def _raise_failure(self, kind: type[BaseException] | None) -> None:
        assert self._connection is not None
        if not self._ended.done():
            raise StoreUnavailable(
                f"timed out after {DEADLINE_SECONDS:g} s waiting for {self._path} to commit: it is unknown "
                f"whether the transaction stands"
            )
        self._connection.shut()
        failure = self._ended.result()
        # The caller's own exception goes first, unless it is only SQLite's report of the same failure.
        if failure is not None and (kind is None or issubclass(kind, sqlite3.Error)):
            raise failure

    # -- the thread's side ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._ready.result()
            with translated_errors(self._path), self._transaction_lock:
                self._file_lock.open_beside(self._path)
                try:
                    self._hold_lock()
                finally:
                    self._file_lock.close()
        except BaseException as error:  # noqa: BLE001 - passed on to the caller, whatever it is
            if self._begun.done():
                self._ended.set_result(error)
            elif self._begun.set_running_or_notify_cancel():
                self._begun.set_exception(error)

    def _hold_lock(self) -> None:
        check_in_place(self._path)
        connection = self._connection = connect_as(OwnConnection, self._path)
        try:
            with self._file_lock:
                began = time.perf_counter()
                begin(connection, self._path)
                stands = self._hold(connection)
                self._ended.set_result(None)
                # Within the file lock: the gap is for programs that do not use it.
                time.sleep(min(GAP_SHARE * (time.perf_counter() - began), MAX_GAP_SECONDS))
            if stands and connection.wakes:
                self._wake(connection.wakes)
        finally:
            if self._commit.done() or not self._begun.done() or self._begun.cancelled():
                connection.shut()  # Otherwise the caller still uses it, and closes it on leaving the block.

    def _hold(self, connection: OwnConnection) -> bool:
        """Hand over the connection, then end the transaction as requested; return whether it committed."""
        try:
            connection.guard()
            if not self._begun.set_running_or_notify_cancel():
                return False
            self._begun.set_result(connection)
            commit = self._wait_for_end(connection)
            if commit:
                try:
                    connection.execute("RELEASE windlass_own")
                except sqlite3.OperationalError as error:  # The original transaction is gone.
                    raise over(self._path) from error
                connection.execute("COMMIT")
            return commit
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _wait_for_end(self, connection: OwnConnection) -> bool:
        try:
            return self._commit.result(MAX_OPEN_SECONDS)
        except TimeoutError:
            # Nothing that the caller still executes may be committed.
            connection.execute("PRAGMA query_only=ON")
            raise StoreUnavailable(
                f"the transaction on {self._path} was rolled back after being open for more than "
                f"{MAX_OPEN_SECONDS:g} s, since all other writes wait for it: move slow work out of the "
                f"block, and enqueue inside it only with within=connection"
            ) from None

    def leave_to_parent(self) -> None:
        """In a forked child: leave the connection and the lock to the parent."""
        self._file_lock.close()
        if self._connection is not None:
            never_free(self._connection)
