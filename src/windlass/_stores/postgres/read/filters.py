"""Translate a filter into SQL conditions. Values are parameters; only column names and states become text.

A task is in one of two tables, by its state, so a filter searches up to two of them; and each of them by one
or more branches of a UNION, one for each index that leads to some of the rows.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from msgspec import Struct

from ...._model.filter import Dimension, Filter
from ...._model.state import ENDED, State
from ...._model.task import is_task_id
from ..rows import HISTORY, ids_of

TASK = tuple(state for state in State if state not in HISTORY)

_BY_QUEUE = frozenset({State.READY, State.DEAD})
"""States whose index begins with the queue."""


class Parameters:
    """The parameters of one statement, in order; equal ones of the same type are sent once."""

    def __init__(self) -> None:
        self._values: list[tuple[str, Any]] = []

    def add(self, value: Any, kind: str) -> str:
        """Add a value of an SQL type; return its placeholder."""
        if (kind, value) not in self._values:
            self._values.append((kind, value))
        return f"${self._values.index((kind, value)) + 1}::{kind}"

    @property
    def all(self) -> tuple[Any, ...]:
        return tuple(value for _, value in self._values)


class Search(Struct, frozen=True):
    """A filter, and the states that can match it in each table."""

    where: Filter
    task: tuple[State, ...]
    history: tuple[State, ...]

    @property
    def is_named(self) -> bool:
        """Whether the filter names tasks by id, root or key, so that few rows can match."""
        where = self.where
        return where.ids is not None or where.root is not None or where.idempotency_key is not None

    @property
    def failure(self) -> str | None:
        """The one failure whose dead tasks are searched: their own index is in the order of a page."""
        where, is_dead = self.where, self.task == (State.DEAD,) and not self.history
        if not is_dead or self.is_named or where.failures is None or len(where.failures) != 1:
            return None
        return where.failures[0]


def search_for(where: Filter) -> Search:
    """Return which states of which table a filter can match."""
    states = set(State if where.states is None else where.states)
    if where.finished_after is not None or where.finished_before is not None:
        states &= ENDED
    if where.failures is not None and "" not in where.failures:
        states -= set(HISTORY)  # where no task has one
    if not _can_match(where):
        states = set()
    return Search(
        where,
        tuple(state for state in TASK if state in states),
        tuple(state for state in HISTORY if state in states),
    )


def _can_match(where: Filter) -> bool:
    """Whether anything can match: stored text has no NUL, and ids are UUIDs."""
    lists = (where.types, where.queues, where.tenants, where.failures)
    texts = (where.idempotency_key, where.error)
    return (
        (where.ids is None or any(map(is_task_id, where.ids)))
        and (where.root is None or is_task_id(where.root))
        and all(values is None or any(map(is_text, values)) for values in lists)
        and all(text is None or is_text(text) for text in texts)
    )


def is_text(text: str) -> bool:
    """Whether a text column can hold this."""
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


# -- conditions --------------------------------------------------------------------------------------


def named(search: Search, parameters: Parameters, alias: str) -> list[list[str]]:
    """Return the conditions of a filter that names tasks: a branch for each index that leads to some."""
    where = search.where
    if where.ids is None and where.root is not None:
        root = parameters.add(where.root, "uuid")
        return [
            [f"{alias}.id = {root}", f"{alias}.root = {root}"],
            [f"{alias}.root = {root}", f"{alias}.root <> {alias}.id"],
        ]
    return [_names(where, parameters, alias)[:1]]


def _names(where: Filter, parameters: Parameters, alias: str) -> list[str]:
    """Return the conditions on what names tasks, the most selective first."""
    found = []
    if where.ids is not None:
        found.append(f"{alias}.id = ANY ({parameters.add(ids_of(where.ids), 'uuid[]')})")
    if where.root is not None:
        found.append(f"{alias}.root = {parameters.add(where.root, 'uuid')}")
    if where.idempotency_key is not None:
        found.append(f"{alias}.idempotency_key = {parameters.add(where.idempotency_key, 'text')}")
    return found


def in_states(states: Sequence[State], alias: str) -> str:
    """Return the condition for these states, as literals so that the planner can use partial indexes."""
    listed = ", ".join(f"'{state.value}'" for state in states)
    return f"{alias}.state = {listed}" if len(states) == 1 else f"{alias}.state IN ({listed})"


def grouped(by: Dimension) -> str:
    """Return the value of a dimension, of a row `t`; without a failure it is ""."""
    return "coalesce(t.failure, '')" if by is Dimension.FAILURE else f"t.{by.value}"


def by_state_index(search: Search, state: State, parameters: Parameters) -> list[str]:
    """Return the conditions that the index of a state in the table of tasks covers: state, queue, failure."""
    branch = [in_states([state], "t")]
    if state in _BY_QUEUE and search.where.queues is not None:
        branch.append(_one_of("queue", search.where.queues, parameters, "t"))
    if state is State.DEAD and search.where.failures is not None:
        branch.append(_failed(search.where.failures, parameters, "t"))
    return branch


def conditions(search: Search, parameters: Parameters, alias: str) -> list[str]:
    """Return all conditions of the filter but the states."""
    where, found = search.where, _names(search.where, parameters, alias)
    for column, wanted in (("type", where.types), ("queue", where.queues), ("tenant", where.tenants)):
        if wanted is not None:
            found.append(_one_of(column, wanted, parameters, alias))
    if where.chained:
        found.append(f"({alias}.next IS NOT NULL OR {alias}.root <> {alias}.id)")  # as the index has it
    if where.failures is not None:
        found.append(_failed(where.failures, parameters, alias))
    if where.error is not None:
        found.append(_mentions(where.error, parameters, alias))
    for column, sign, at in (
        ("created_at", ">=", where.created_after),
        ("created_at", "<", where.created_before),
        ("finished_at", ">=", where.finished_after),
        ("finished_at", "<", where.finished_before),
        ("expires_at", "<", where.expires_before),
    ):
        if at is not None:
            found.append(f"{alias}.{column} {sign} {parameters.add(at, 'timestamptz')}")
    if where.expires_before is not None:
        found.append(f"{alias}.attempt = 0")
    return found


def _one_of(column: str, wanted: Sequence[str], parameters: Parameters, alias: str) -> str:
    return f"{alias}.{column} = ANY ({parameters.add([text for text in wanted if is_text(text)], 'text[]')})"


def _failed(failures: Sequence[str], parameters: Parameters, alias: str) -> str:
    """Return the condition on the failure.

    That of one alone is a range. With `=` the planner knows that task_dead has its tasks in the same order,
    and may read all others on the way to those of a failure that has not occurred lately.
    """
    wanted = [failure for failure in failures if failure and is_text(failure)]
    either = [f"{alias}.failure IS NULL"] if "" in failures else []
    if len(wanted) == 1:
        either.append(f"{alias}.failure BETWEEN {(one := parameters.add(wanted[0], 'text'))} AND {one}")
    elif wanted:
        either.append(_one_of("failure", wanted, parameters, alias))
    return f"({' OR '.join(either)})"


# -- errors ------------------------------------------------------------------------------------------

_KELVIN = "\u212a"
_SIGMA, _FINAL_SIGMA = "\u03c3", "\u03c2"
_DOTTED_I, _DOTTED_LOWER = "\u0130", "i\u0307"
_LAST_CASED = 0x1F000  # Characters above have no case.


def _mentions(text: str, parameters: Parameters, alias: str) -> str:
    """Return the condition that an error's type or message contains a text, ignoring case in any script.

    What `lower` does depends on the database's locale; with COLLATE "C" it converts ASCII only. The other
    characters that fold to those of the text are translated here; no others can be part of a match.
    """
    lower = text.lower().replace(_FINAL_SIGMA, _SIGMA)
    wanted = parameters.add(lower, "text")
    either = " OR ".join(
        f"strpos({_folded(f'{alias}.{column}', lower, parameters)}, {wanted}) > 0"
        for column in ("error_type", "error_message")
    )
    return f"({alias}.error_type IS NOT NULL AND ({either}))"


def _folded(column: str, lower: str, parameters: Parameters) -> str:
    """Return the column in lower case, as far as this text needs it."""
    folded = f'lower({column} COLLATE "C")'
    # The two non-ASCII characters whose lower case contains ASCII.
    if "k" in lower:
        folded = f"replace({folded}, '{_KELVIN}', 'k')"
    if not set(_DOTTED_LOWER).isdisjoint(lower):
        folded = f"replace({folded}, '{_DOTTED_I}', '{_DOTTED_LOWER}')"
    folds = [(upper, char) for char in sorted(set(lower)) for upper in _uppers().get(char, ())]
    if not folds:
        return folded
    uppers, lowers = ("".join(pair[n] for pair in folds) for n in (0, 1))
    return f"translate({folded}, {parameters.add(uppers, 'text')}, {parameters.add(lowers, 'text')})"


@cache
def _uppers() -> dict[str, list[str]]:
    """Map each non-ASCII lower-case character to those that fold to it; a final sigma folds to a sigma."""
    found = {_SIGMA: [_FINAL_SIGMA]}
    for char in map(chr, range(0x80, _LAST_CASED)):
        lower = char.lower()
        if lower != char and len(lower) == 1 and not lower.isascii():
            found.setdefault(lower, []).append(char)
    return found
