"""A transaction on a connection of our own, for a handler's writes and its task's end together. (D15)

It has a thread, which waits for its turn, begins, and ends it as told; the caller runs his statements
himself, wherever he is. While it is open everybody else's writes wait, so it is not open for long.
"""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from ...errors import StoreUnavailable, UsageError
from .connection.errors import told
from .connection.file_lock import Turnstile
from .connection.open import begin, connect_as, never_free
from .connection.threads import DEADLINE_SECONDS, GAP_SHARE, MAX_GAP_SECONDS, uncancellable
from .transaction import Wakes

MAX_OPEN_SECONDS = 5.0
"""How long a block may keep the file. Every write of every process waits as long, heartbeats too: it is well
below their patience, and below the ten seconds that a program waits which does not know our turnstile."""

_OPEN_TOO_LONG = (
    "the transaction on {path} was open for more than {seconds:g} s, while everybody else waited to write, "
    "and was rolled back: do slow things before the block, and within it enqueue only with within=connection"
)
_OVER = (
    "the transaction on {path} is over: it was rolled back, by SQLite after an error or for being open too "
    "long; nothing of it stands"
)
_NOT_BEGUN = (
    "{path} was not to be had for a transaction within {seconds:g} s: look for a process that keeps it, or "
    "for too many transactions at once; nothing was done"
)
_NO_ANSWER = "{path} gave no answer within {seconds:g} s: whether the transaction stands is not known"


class OwnConnection(sqlite3.Connection):
    """A connection that its holder can do everything with but end the transaction."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]  # whatever sqlite3.connect passes
        self.wakes = Wakes()
        self._keeper = threading.get_ident()  # the thread that began it, and that alone may end it

    def guard(self) -> None:
        """From here on only this thread ends the transaction, and none is begun after it."""
        self.execute("SAVEPOINT windlass_own")
        # So that after a transaction that SQLite itself has rolled back the next write begins one, and fails.
        self.isolation_level = "IMMEDIATE"
        self.set_authorizer(self._allows)

    def _allows(self, action: int, _: str | None, name: str | None, *__: object) -> int:
        ends = action == sqlite3.SQLITE_TRANSACTION or (
            action == sqlite3.SQLITE_SAVEPOINT and name == "windlass_own"
        )
        mine = threading.get_ident() == self._keeper
        return sqlite3.SQLITE_DENY if ends and not mine else sqlite3.SQLITE_OK

    def shut(self) -> None:
        """Close it, once nobody uses it any more."""
        super().close()

    def commit(self) -> NoReturn:
        """Refused: leaving the block commits."""
        raise _refusal()

    def rollback(self) -> NoReturn:
        """Refused: raising in the block rolls back."""
        raise _refusal()

    def close(self) -> NoReturn:
        """Refused: leaving the block closes it."""
        raise _refusal()

    def __enter__(self) -> NoReturn:
        raise _refusal()


def _refusal() -> UsageError:
    return UsageError(
        "the block of ctx.transaction() is the transaction: leaving it commits, an exception rolls back"
    )


def over(path: Path) -> StoreUnavailable:
    """The error for a transaction that was rolled back under its holder's feet."""
    return StoreUnavailable(_OVER.format(path=path))


class OwnTransaction:
    """`async with` or `with`, once."""

    def __init__(
        self, path: Path, ready: "Future[None]", one_by_one: threading.Lock, wake: Callable[[Wakes], None]
    ) -> None:
        self._path = path
        self._ready = ready  # the schema is there
        self._one_by_one = one_by_one  # of one handle only one queues up among the processes
        self._wake = wake
        self._turn = Turnstile()
        self._connection: OwnConnection | None = None
        self._begun: Future[OwnConnection] = Future()
        self._commit: Future[bool] = Future()
        self._ended: Future[BaseException | None] = uncancellable()  # with why it does not stand

    # -- the caller's side ---------------------------------------------------------------------------

    async def __aenter__(self) -> sqlite3.Connection:
        self._start()
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                return await asyncio.wrap_future(self._begun)
        except TimeoutError as error:
            raise self._given_up() from error
        except BaseException:
            self._given_up()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        self._commit.set_result(kind is None)
        await asyncio.wait([asyncio.wrap_future(self._ended)], timeout=DEADLINE_SECONDS)
        self._left(kind)

    def __enter__(self) -> sqlite3.Connection:
        self._start()
        try:
            return self._begun.result(DEADLINE_SECONDS)
        except TimeoutError as error:
            raise self._given_up() from error
        except BaseException:
            self._given_up()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        self._commit.set_result(kind is None)
        wait([self._ended], timeout=DEADLINE_SECONDS)
        self._left(kind)

    def _start(self) -> None:
        threading.Thread(target=self._live, name="windlass-transaction", daemon=True).start()

    def _given_up(self) -> StoreUnavailable:
        """Nobody waits for it any more; if it begins all the same, it is rolled back at once."""
        if not self._begun.cancel():
            self._commit.set_result(False)
        return StoreUnavailable(_NOT_BEGUN.format(path=self._path, seconds=DEADLINE_SECONDS))

    def _left(self, kind: type[BaseException] | None) -> None:
        assert self._connection is not None
        if not self._ended.done():
            raise StoreUnavailable(_NO_ANSWER.format(path=self._path, seconds=DEADLINE_SECONDS))
        self._connection.shut()
        failure = self._ended.result()
        # What the caller raised is what went wrong, unless it is only SQLite's word for the same.
        if failure is not None and (kind is None or issubclass(kind, sqlite3.Error)):
            raise failure

    # -- the thread's side ---------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            self._ready.result()
            with told(self._path), self._one_by_one:
                self._turn.open_beside(self._path)
                try:
                    self._keep()
                finally:
                    self._turn.close()
        except BaseException as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
            if self._begun.done():
                self._ended.set_result(error)
            elif self._begun.set_running_or_notify_cancel():
                self._begun.set_exception(error)

    def _keep(self) -> None:
        connection = self._connection = connect_as(OwnConnection, self._path)
        try:
            with self._turn:
                began = time.perf_counter()
                begin(connection, self._path)
                stands = self._hold(connection)
                self._ended.set_result(None)
                # Inside the turnstile, so that the gap is for programs that do not know it.
                time.sleep(min(GAP_SHARE * (time.perf_counter() - began), MAX_GAP_SECONDS))
            if stands and connection.wakes:
                self._wake(connection.wakes)
        finally:
            if self._commit.done() or not self._begun.done() or self._begun.cancelled():
                connection.shut()  # Otherwise its holder still has it, and shuts it when he leaves.

    def _hold(self, connection: OwnConnection) -> bool:
        """Hand the connection over and end the transaction as told; says whether it stands."""
        try:
            connection.guard()
            if not self._begun.set_running_or_notify_cancel():
                return False
            self._begun.set_result(connection)
            commit = self._told_in_time(connection)
            if commit:
                self._end(connection)
            return commit
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _told_in_time(self, connection: OwnConnection) -> bool:
        try:
            return self._commit.result(MAX_OPEN_SECONDS)
        except TimeoutError:
            # What its holder does from here on must not stand by itself.
            connection.execute("PRAGMA query_only=ON")
            raise StoreUnavailable(_OPEN_TOO_LONG.format(path=self._path, seconds=MAX_OPEN_SECONDS)) from None

    def _end(self, connection: OwnConnection) -> None:
        try:
            connection.execute("RELEASE windlass_own")
        except sqlite3.OperationalError as error:  # It is not the transaction that was begun.
            raise over(self._path) from error
        connection.execute("COMMIT")

    def leave_to_parent(self) -> None:
        """In a forked child: the connection and the turn are the parent's."""
        self._turn.close()
        if self._connection is not None:
            never_free(self._connection)
