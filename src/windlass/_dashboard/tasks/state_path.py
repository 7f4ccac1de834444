"""The path of a task through its states, and its drawing on the diagram of all states."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise, zip_longest

from markupsafe import Markup
from msgspec import Struct

from ..._documents.tasks import AttemptDocument, TaskDocument
from ..._model.state import TRANSITIONS, State, Verb

WIDTH, HEIGHT = 720, 208
_BOX_WIDTH, _BOX_HEIGHT = 108, 42
_PLACES = {
    State.WAITING: (60, 116),
    State.SCHEDULED: (200, 56),
    State.READY: (340, 116),
    State.RUNNING: (490, 116),
    State.COMPLETED: (654, 34),
    State.DEAD: (654, 104),
    State.CANCELLED: (654, 174),
}
_MAIN = (Verb.UNBLOCK, Verb.PROMOTE, Verb.CLAIM, Verb.COMPLETE, Verb.BURY)
_POSTPONED = ("snoozed", "interrupted")
"""Outcomes after which the number of the attempt does not rise."""

MOVES = {
    (row.source, target): row.verb
    for row in TRANSITIONS
    if row.source is not None
    for target in row.targets
    if target is not row.source
}
"""The verb that leads from one state to another."""


class Visit(Struct, frozen=True):
    """A state that a task was in. `at` is when it came there, if that is recorded."""

    state: State
    at: datetime | None = None


def state_path(task: TaskDocument, attempts: Sequence[AttemptDocument]) -> Sequence[Visit]:
    """Return the states that a task went through, as far as its record and its attempts tell."""
    path = [Visit(_first_state(task, attempts), task.created_at)]
    for attempt, following in zip_longest(attempts, attempts[1:]):
        _go(path, State.RUNNING, attempt.claimed_at)
        number = task.attempt if following is None else following.number - 1
        if following is None and attempt.finished_at == task.finished_at:
            _go(path, task.state, task.finished_at)
        elif number < attempt.number and attempt.outcome not in _POSTPONED:
            _go(path, State.DEAD, attempt.finished_at)  # Someone has replayed it since.
        else:
            _go(path, State.SCHEDULED, attempt.finished_at)
    if path[-1].state is not task.state:
        _go(path, task.state, task.claimed_at if task.state is State.RUNNING else task.finished_at)
    return path


def _first_state(task: TaskDocument, attempts: Sequence[AttemptDocument]) -> State:
    if task.after:
        return State.WAITING
    # A retry changes `run_at`.
    is_original = not attempts or attempts[0].finished_at == task.finished_at
    return State.SCHEDULED if is_original and task.run_at > task.created_at else State.READY


def _go(path: list[Visit], state: State, at: datetime | None) -> None:
    """Add a state, and those between that the table demands."""
    path += [Visit(one) for one in _ways(path[-1].state, state)]
    path.append(Visit(state, at))


@cache
def _ways(source: State, target: State) -> tuple[State, ...]:
    """Return the states between two, by the fewest moves."""
    reached: dict[State, tuple[State, ...]] = {source: ()}
    while target not in reached or target is source:
        new = {
            to: (*way, one)
            for one, way in reached.items()
            for (start, to) in MOVES
            if start is one and to not in reached
        }
        if not new or target is source:
            break
        reached |= new
    return reached.get(target, ())[1:]


def draw_path(path: Sequence[Visit]) -> Markup:
    """Draw the states with the moves that a task made, as SVG; the last state is the present one."""
    moves = Counter(pairwise(visit.state for visit in path))
    visits = Counter(visit.state for visit in path)
    last = {visit.state: visit for visit in path}
    present = path[-1].state if path else None
    words = ", then ".join(visit.state.value for visit in path[-20:])
    lines = [
        _line(source, target, moves[source, target])
        for (source, target), verb in MOVES.items()
        if moves[source, target] or verb in _MAIN
    ]
    boxes = [_box(state, last.get(state), visits[state], is_present=state is present) for state in _PLACES]
    return Markup(
        '<svg class="states" viewBox="0 0 {} {}" role="img" aria-label="States of this task: {}">'
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>{}{}</svg>'
    ).format(WIDTH, HEIGHT, words, Markup("").join(lines), Markup("").join(boxes))


def _box(state: State, visit: Visit | None, number: int, *, is_present: bool) -> Markup:
    x, y = _PLACES[state]
    kind = " ".join([state.value, *(["seen"] if visit else []), *(["present"] if is_present else [])])
    name = state.value if number < 2 else f"{state.value} \N{MULTIPLICATION SIGN}{number}"
    at = visit.at if visit else None
    below = "" if at is None else f"{at.astimezone(UTC):%d %b %H:%M:%S}"
    return Markup(
        '<g class="{}"><rect x="{}" y="{}" width="{}" height="{}" rx="8"/>'
        '<text x="{}" y="{}">{}</text><text class="at" x="{}" y="{}">{}</text></g>'
    ).format(
        kind, x - _BOX_WIDTH // 2, y - _BOX_HEIGHT // 2, _BOX_WIDTH, _BOX_HEIGHT,
        x, y - 3 if below else y + 4, name, x, y + 13, below,
    )  # fmt: skip


def _line(source: State, target: State, number: int) -> Markup:
    (x, y), (to_x, to_y) = _PLACES[source], _PLACES[target]
    right, half = _BOX_WIDTH // 2, _BOX_HEIGHT // 2
    if target is State.CANCELLED and source is not State.RUNNING:
        way = f"M{x} {y + half}C{x} 204 {x + 60} {to_y + 8} {to_x - right} {to_y + 8}"
    elif to_x > x:
        middle = (x + to_x) // 2
        way = f"M{x + right} {y}C{middle} {y} {middle} {to_y} {to_x - right} {to_y}"
    elif source is State.RUNNING:
        way = f"M{x} {y - half}C{x} {to_y} {x} {to_y} {to_x + right} {to_y}"
        if target is State.READY:
            way = f"M{x} {y - half}C{x} {y - 60} {to_x} {to_y - 60} {to_x} {to_y - half}"
    else:
        way = f"M{x - right} {y + 6}C{x - 120} {y + 60} {to_x + 40} {to_y + 80} {to_x} {to_y + half}"
    kind = "taken" if number else "open"
    return Markup('<path class="{}" d="{}" marker-end="url(#arrow)"/>').format(kind, way)
