"""From a filter to conditions. Values are parameters; only our own words and the states' become text.

A task lies in one of two tables, by its state, so that a filter has up to two sides; and a side has one arm
for each index that leads to some of its rows.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from msgspec import Struct

from ...._model.filter import Filter
from ...._model.state import ENDED, State
from ...._model.task import is_task_id
from ..rows import ids_of

HISTORY = (State.COMPLETED, State.CANCELLED)
"""The states of tasks in the history; all others lie in the table of tasks."""

TASK = tuple(state for state in State if state not in HISTORY)

_BY_QUEUE = frozenset({State.READY, State.DEAD})
"""States whose index begins with the queue."""


class Values:
    """The parameters of one statement, in order; an equal one of the same kind is put in once."""

    def __init__(self) -> None:
        self._values: list[tuple[str, Any]] = []

    def put(self, value: Any, kind: str) -> str:
        """The text that stands for this value in the statement."""
        if (kind, value) not in self._values:
            self._values.append((kind, value))
        return f"${self._values.index((kind, value)) + 1}::{kind}"

    @property
    def all(self) -> tuple[Any, ...]:
        """The values, as the statement takes them."""
        return tuple(value for _, value in self._values)


class Sought(Struct, frozen=True):
    """A filter with everything left out that cannot be: the states that each table may hold, and the rest."""

    where: Filter
    task: tuple[State, ...]
    history: tuple[State, ...]

    @property
    def is_named(self) -> bool:
        """Whether the filter says which tasks it means, rather than what they are like: never many rows."""
        return (
            self.where.ids is not None
            or self.where.root is not None
            or self.where.idempotency_key is not None
        )


def sought(where: Filter) -> Sought:
    """What a filter can find, and where."""
    states = set(State if where.states is None else where.states)
    if where.finished_after is not None or where.finished_before is not None:
        states &= ENDED
    if not _can_match(where):
        states = set()
    return Sought(
        where,
        tuple(state for state in TASK if state in states),
        tuple(state for state in HISTORY if state in states),
    )


def _can_match(where: Filter) -> bool:
    """Whether anything can match: in the database no text has a NUL, and no id is anything but a UUID."""
    lists = (where.types, where.queues, where.tenants)
    texts = (where.idempotency_key, where.error)
    return (
        (where.ids is None or any(map(is_task_id, where.ids)))
        and (where.root is None or is_task_id(where.root))
        and all(values is None or any(map(is_text, values)) for values in lists)
        and all(text is None or is_text(text) for text in texts)
    )


def is_text(text: str) -> bool:
    """Whether a text column can hold this at all."""
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


# -- conditions --------------------------------------------------------------------------------------


def names(of: Sought, values: Values, alias: str) -> list[list[str]]:
    """The conditions of a filter that says which tasks it means: an arm for each index that leads to some."""
    where = of.where
    if where.ids is not None:
        return [[f"{alias}.id = ANY ({values.put(ids_of(where.ids), 'uuid[]')})"]]
    if where.root is not None:
        root = values.put(where.root, "uuid")
        return [
            [f"{alias}.id = {root}", f"{alias}.root = {root}"],
            [f"{alias}.root = {root}", f"{alias}.root <> {alias}.id"],
        ]
    assert where.idempotency_key is not None
    return [[f"{alias}.idempotency_key = {values.put(where.idempotency_key, 'text')}"]]


def states(of: Sequence[State], alias: str) -> str:
    """These states alone. As text, so that the planner sees which partial index holds them."""
    named = ", ".join(f"'{state.value}'" for state in of)
    return f"{alias}.state = {named}" if len(of) == 1 else f"{alias}.state IN ({named})"


def of_state(of: Sought, state: State, values: Values) -> list[str]:
    """What the index of one state in the table of tasks answers: the state, and it may be the queue."""
    arm = [states([state], "t")]
    if state in _BY_QUEUE and of.where.queues is not None:
        arm.append(_one_of("queue", of.where.queues, values, "t"))
    return arm


def conditions(of: Sought, values: Values, alias: str) -> list[str]:
    """Everything that the filter asks for but the states."""
    where, found = of.where, []
    if where.ids is not None:
        found.append(f"{alias}.id = ANY ({values.put(ids_of(where.ids), 'uuid[]')})")
    if where.root is not None:
        found.append(f"{alias}.root = {values.put(where.root, 'uuid')}")
    if where.idempotency_key is not None:
        found.append(f"{alias}.idempotency_key = {values.put(where.idempotency_key, 'text')}")
    for column, wanted in (("type", where.types), ("queue", where.queues), ("tenant", where.tenants)):
        if wanted is not None:
            found.append(_one_of(column, wanted, values, alias))
    if where.error is not None:
        found.append(_mentions(where.error, values, alias))
    for column, sign, at in (
        ("created_at", ">=", where.created_after),
        ("created_at", "<", where.created_before),
        ("finished_at", ">=", where.finished_after),
        ("finished_at", "<", where.finished_before),
    ):
        if at is not None:
            found.append(f"{alias}.{column} {sign} {values.put(at, 'timestamptz')}")
    return found


def _one_of(column: str, wanted: Sequence[str], values: Values, alias: str) -> str:
    return f"{alias}.{column} = ANY ({values.put([text for text in wanted if is_text(text)], 'text[]')})"


# -- errors ------------------------------------------------------------------------------------------

_KELVIN = "\u212a"
_SIGMA, _FINAL_SIGMA = "\u03c3", "\u03c2"
_DOTTED_I, _DOTTED_LOWER = "\u0130", "i\u0307"
_LAST_CASED = 0x1F000  # No character beyond has a case.


def _mentions(text: str, values: Values, alias: str) -> str:
    """An error whose type or message has this text in it, whatever the case, in any script.

    What `lower` does in a database depends on its locale, but on C it is certain: ASCII alone. For the rest
    we say ourselves which characters become those of the text; no others can be part of a match.
    """
    lower = text.lower().replace(_FINAL_SIGMA, _SIGMA)
    wanted = values.put(lower, "text")
    either = " OR ".join(
        f"strpos({_folded(f'{alias}.{column}', lower, values)}, {wanted}) > 0"
        for column in ("error_type", "error_message")
    )
    return f"({alias}.error_type IS NOT NULL AND ({either}))"


def _folded(column: str, lower: str, values: Values) -> str:
    """The column in lower case, as far as it matters to this text."""
    folded = f'lower({column} COLLATE "C")'
    # The two characters beyond ASCII whose lower case is within.
    if "k" in lower:
        folded = f"replace({folded}, '{_KELVIN}', 'k')"
    if not set(_DOTTED_LOWER).isdisjoint(lower):
        folded = f"replace({folded}, '{_DOTTED_I}', '{_DOTTED_LOWER}')"
    pairs = [(upper, char) for char in sorted(set(lower)) for upper in _uppers().get(char, ())]
    if not pairs:
        return folded
    uppers, lowers = ("".join(pair[n] for pair in pairs) for n in (0, 1))
    return f"translate({folded}, {values.put(uppers, 'text')}, {values.put(lowers, 'text')})"


@cache
def _uppers() -> dict[str, list[str]]:
    """For each lower-case character beyond ASCII those that become it. A final sigma counts as any other."""
    found = {_SIGMA: [_FINAL_SIGMA]}
    for char in map(chr, range(0x80, _LAST_CASED)):
        lower = char.lower()
        if lower != char and len(lower) == 1 and not lower.isascii():
            found.setdefault(lower, []).append(char)
    return found
