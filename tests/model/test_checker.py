"""The checker itself: it finds shortest ways, and what cannot end."""

from collections.abc import Iterator

import pytest

from tests.model.checker import Step, explore, follow


class Counter:
    """Counts to ten by one or by three; a fault takes it to a place that it may not leave."""

    def __init__(self, *, forbidden: int = -1, trap: int = -1, reset: int = -1) -> None:
        self._forbidden, self._trap, self._reset = forbidden, trap, reset

    def start(self) -> int:
        return 0

    def steps(self, state: int) -> Iterator[Step[int]]:
        if state < 10 and state != self._trap:
            yield Step(f"{state} + 1", state + 1)
            yield Step(f"{state} + 3", min(state + 3, 10))
        if state == self._trap:
            yield Step("a fault helps", 10, is_fault=True)
        if state == self._reset:
            yield Step("reset", 0)

    def bad_state(self, state: int) -> str | None:
        return "forbidden" if state == self._forbidden else None

    def bad_step(self, before: int, step: Step[int]) -> str | None:
        return "backwards" if step.state < before else None

    def has_ended(self, state: int) -> bool:
        return state == 10


def test_every_state_is_visited_once() -> None:
    found = explore(Counter())
    assert (found.states, found.flaw, found.depth) == (11, None, 4)


def test_the_shortest_way_to_a_flaw_is_found() -> None:
    flaw = explore(Counter(forbidden=7)).flaw
    assert flaw is not None
    assert len(flaw.steps) == 3
    assert str(flaw).splitlines()[-1] == "  => forbidden"
    assert [step.state for step in follow(Counter(), flaw.steps)][-1] == 7


def test_a_bad_step_to_a_state_that_is_known_is_found() -> None:
    flaw = explore(Counter(reset=6)).flaw
    assert flaw is not None
    assert (flaw.reason, len(flaw.steps)) == ("backwards", 3)


def test_a_state_that_only_a_fault_can_leave_is_found() -> None:
    flaw = explore(Counter(trap=5)).flaw
    assert flaw is not None
    assert "leads to an end" in flaw.reason
    assert [step.state for step in follow(Counter(trap=5), flaw.steps)][-1] == 5


def test_too_many_states_are_refused() -> None:
    with pytest.raises(MemoryError, match="more than 5 states"):
        explore(Counter(), limit=5)
