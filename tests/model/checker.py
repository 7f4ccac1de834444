"""An explicit-state model checker: visits every reachable state of a model, breadth first.

A model is a start and the steps that are possible in a state. States are immutable and hashable. Two kinds of
flaws are found, each with the shortest sequence of steps that leads to it:

- a state or a step that the model calls bad (safety);
- a state from which no steps without further faults lead to an end (liveness). The graph is finite, so this
  is the same as: once faults cease, every run ends in which no step that stays possible is put off for ever.
"""

from array import array
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

S = TypeVar("S")
MAX_STATES = 3_000_000


class Step(NamedTuple, Generic[S]):
    """Something that can happen, and the state after it. `call` and `reply` are for those who replay it."""

    text: str
    state: S
    is_fault: bool = False  # nobody may rely on it to happen
    call: tuple[Any, ...] | None = None
    reply: Any = None


class Model(Protocol[S]):
    """What to check."""

    def start(self) -> S: ...

    def steps(self, state: S) -> Iterable[Step[S]]: ...

    def bad_state(self, state: S) -> str | None:
        """Say what is wrong with a state, if anything is."""

    def bad_step(self, before: S, step: Step[S]) -> str | None:
        """Say what is wrong with a step, if anything is."""

    def has_ended(self, state: S) -> bool:
        """Whether all that was to be done is done."""


class Flaw(NamedTuple):
    """What is wrong, and the shortest way there."""

    reason: str
    steps: tuple[str, ...]

    def __str__(self) -> str:
        story = [f"{number:3}. {text}" for number, text in enumerate(self.steps, 1)]
        return "\n".join([*story, f"  => {self.reason}"])


class Exploration(NamedTuple):
    """The result of a check."""

    states: int
    steps: int
    depth: int
    flaw: Flaw | None

    def __str__(self) -> str:
        figures = f"{self.states:,} states, {self.steps:,} steps, depth {self.depth}"
        return figures if self.flaw is None else f"{figures}\n{self.flaw}"


def explore(model: Model[S], limit: int = MAX_STATES) -> Exploration:
    """Visit all states, or those up to the first flaw. Raises MemoryError beyond `limit` states."""
    return _Search(model, limit).run()


def follow(model: Model[S], texts: Iterable[str]) -> Iterator[Step[S]]:
    """Take the steps of a story again."""
    state = model.start()
    for text in texts:
        step = next(step for step in model.steps(state) if step.text == text)
        yield step
        state = step.state


def random_walk(model: Model[S], random: Random, number: int) -> Iterator[Step[S]]:
    """Take this many steps, most of which change something."""
    state = model.start()
    for _ in range(number):
        steps = list(model.steps(state))
        changing = [step for step in steps if step.state != state]
        step = random.choice(changing if changing and random.random() < 0.9 else steps)
        yield step
        state = step.state


class _Search(Generic[S]):
    def __init__(self, model: Model[S], limit: int) -> None:
        self._model = model
        self._limit = limit
        self._number: dict[S, int] = {}
        self._states: list[S] = []
        self._from = array("l")  # the state that each was first reached from
        self._depth = array("l")
        self._texts: list[str] = []  # the step that led there
        self._without_fault: list[array[int]] = []  # the states before each, by steps that are no faults
        self._steps = 0

    def run(self) -> Exploration:
        self._add(self._model.start(), -1, "")
        for number, state in enumerate(self._states):  # grows meanwhile
            for step in self._model.steps(state):
                self._steps += 1
                after = number if step.state is state else self._number.get(step.state)
                reason = self._model.bad_step(state, step)
                if after is None:
                    after = self._add(step.state, number, step.text)
                    reason = reason or self._model.bad_state(step.state)
                if reason:
                    return self._result(Flaw(reason, (*self._story(number), step.text)))
                if not step.is_fault and after != number:
                    self._without_fault[after].append(number)
        return self._result(self._stuck())

    def _add(self, state: S, before: int, text: str) -> int:
        number = len(self._states)
        if number == self._limit:
            raise MemoryError(f"more than {number:,} states; set smaller bounds")
        self._number[state] = number
        self._states.append(state)
        self._from.append(before)
        self._depth.append(self._depth[before] + 1 if before >= 0 else 0)
        self._texts.append(text)
        self._without_fault.append(array("l"))
        return number

    def _stuck(self) -> Flaw | None:
        """Find the nearest state from which no end can be reached without faults."""
        can_end = bytearray(len(self._states))
        found = [number for number, state in enumerate(self._states) if self._model.has_ended(state)]
        while found:
            number = found.pop()
            if not can_end[number]:
                can_end[number] = True
                found += self._without_fault[number]
        stuck = can_end.find(0)
        return (
            None
            if stuck < 0
            else Flaw("from here on nothing that is sure to happen leads to an end", self._story(stuck))
        )

    def _story(self, number: int) -> tuple[str, ...]:
        def backwards() -> Iterator[str]:
            at = number
            while at > 0:
                yield self._texts[at]
                at = self._from[at]

        return tuple(backwards())[::-1]

    def _result(self, flaw: Flaw | None) -> Exploration:
        return Exploration(len(self._states), self._steps, max(self._depth), flaw)
