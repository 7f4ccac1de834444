"""What is asked on the caller's connection: the same scripts as on our own, his transaction left whole."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from ...._model.task import Enqueued, NewTask
from ...._model.verdict import Receipt, Settlement
from ....errors import InvalidOption, SchemaMismatch
from ...migrations import require_current
from ...rules.admission import is_plain
from .. import schema
from .. import settle as leases
from ..enqueue.plain import Terms
from ..rule_player import enqueue as enqueue_by_rule
from ..script import Ask, Row, Script, ask
from ..statements import statement
from .errors import in_our_words

T = TypeVar("T")

_PLACE = "the database of your connection"

_current: "WeakKeyDictionary[object, set[str]]" = WeakKeyDictionary()
"""Which schemas were found to be current, by connection: each stays with one database for life."""


class Lent(Protocol):
    """A connection of the caller's that blocks. `identity` is the driver's own object."""

    identity: object

    @property
    def commits_by_itself(self) -> bool:
        """Whether the next statement would be a transaction of its own."""
        ...

    def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Row]:
        """The rows of one statement."""
        ...


class LentAsync(Protocol):
    """A connection of the caller's that is awaited. `identity` is the driver's own object."""

    identity: object

    @property
    def commits_by_itself(self) -> bool:
        """Whether the next statement would be a transaction of its own."""
        ...

    async def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Row]:
        """The rows of one statement."""
        ...


# -- what is asked -----------------------------------------------------------------------------------


def enqueue(lent: Lent | LentAsync, terms: Terms, batch: Sequence[NewTask]) -> Script[Sequence[Enqueued]]:
    """Insert the batch; a refusal leaves the transaction as it was."""
    if not batch:
        return []
    by_itself = lent.commits_by_itself
    yield from _check(lent, terms)
    if terms.layout.is_stale:
        terms.layout.asking()
        terms.layout.learn((yield from ask("layout")))
    inserting = enqueue_by_rule(terms, batch)
    if all(map(is_plain, batch)):
        # One statement, which nothing can refuse, needs no savepoint. That is quicker, and a transaction may
        # enqueue one by one as often as it likes: past 64 savepoints Postgres gets slow for everybody.
        return (yield from inserting)
    return (yield from _whole(inserting, by_itself=by_itself))


def settle(lent: Lent | LentAsync, terms: Terms, batch: Sequence[Settlement]) -> Script[Sequence[Receipt]]:
    """Apply the verdicts whose leases hold; what goes wrong leaves the transaction as it was."""
    if lent.commits_by_itself:
        raise InvalidOption("settling inside a transaction needs one: begin it first")
    if not batch:
        return ()
    yield from _check(lent, terms)
    if len(batch) == 1 and leases.is_quick(batch):
        grant = leases.read_grant((yield leases.exchange(terms, batch, None, ())))
        if grant.done is None:
            return (Receipt.APPLIED,)
    receipts, _ = yield from _whole(leases.settle(terms, batch, None, ()), by_itself=False)
    return receipts


def _check(lent: Lent | LentAsync, terms: Terms) -> Script[None]:
    """See that the schema is there and is one that this code knows. Once for each connection."""
    known = _current.get(lent.identity)
    if known is not None and terms.schema in known:
        return
    found = yield from schema.number()
    if found == 0:
        raise SchemaMismatch(
            f"{_PLACE} has no schema {terms.schema} with windlass's tables: connect to the store's database; "
            f"if it is that one, call app.setup() once, or run `windlass migrate`"
        )
    require_current(schema.steps(), found, _PLACE)
    with suppress(TypeError):  # One that cannot be remembered is asked every time.
        _current.setdefault(lent.identity, set()).add(terms.schema)


def _whole(script: Script[T], *, by_itself: bool) -> Script[T]:
    """All of a script or nothing, and the rest of the caller's transaction as it was."""
    begin, end, undo = _OWN if by_itself else _HIS
    yield begin
    try:
        answer = yield from script
    except GeneratorExit:
        raise
    except BaseException:
        for step in undo:
            with suppress(Exception):  # What went wrong first is what to tell.
                yield step
        raise
    yield end
    return answer


_RELEASE = Ask("release", (), "RELEASE SAVEPOINT windlass_join")
_HIS = (
    Ask("savepoint", (), "SAVEPOINT windlass_join"),
    _RELEASE,
    (Ask("undo", (), "ROLLBACK TO SAVEPOINT windlass_join"), _RELEASE),
)
_OWN = (
    Ask("begin", (), "BEGIN ISOLATION LEVEL READ COMMITTED"),
    Ask("commit", (), "COMMIT"),
    (Ask("rollback", (), "ROLLBACK"),),
)


# -- and how -----------------------------------------------------------------------------------------


@contextmanager
def told() -> Iterator[None]:
    """Raise what goes wrong within in our words, whichever driver says it."""
    try:
        yield
    except Exception as error:
        ours = in_our_words(error)
        if ours is None:
            raise
        raise ours from error


async def play(script: Script[T], lent: LentAsync, schema: str) -> T:
    """Play a script to its end; it hears of what goes wrong, so that it can undo."""
    try:
        wanted = next(script)
        while True:
            try:
                rows = await lent.fetch(_text(wanted, schema), wanted.parameters)
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001  the script raises it again
                wanted = script.throw(error)
            else:
                wanted = script.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result


def play_blocking(script: Script[T], lent: Lent, schema: str) -> T:
    """The same in this thread."""
    try:
        wanted = next(script)
        while True:
            try:
                rows = lent.fetch(_text(wanted, schema), wanted.parameters)
            except BaseException as error:  # noqa: BLE001  the script raises it again
                wanted = script.throw(error)
            else:
                wanted = script.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result


def _text(ask: Ask, schema: str) -> str:
    return ask.sql or statement(ask.name, schema)
