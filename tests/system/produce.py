"""A producer process: enqueues wishes of every kind, and writes down what was tried and what acknowledged.

`python -m tests.system.produce '{"name": "p", "seed": 1, "wishes": 100, "per_second": 50}'`. Started again
under the same name, it repeats what it may have failed to hear of, and goes on where it was killed.
"""

import json
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from time import monotonic
from typing import Any

from tests.system import program
from tests.system.full import watch_for_full
from tests.system.history import Acknowledged, Diary, Refused, Tried, Wanted, read
from tests.system.program import FOLDER, app
from windlass import RESULT, StoreError, chain
from windlass._stores.sqlite.connection import threads as lines

MAX_TRIES = 200
PATIENCE = 0.1
TENANTS: list[str] = []  # of single tasks; none: they have none


@dataclass
class Wish:
    """Tasks to be enqueued in one go."""

    name: str
    tasks: dict[str, Wanted]
    enqueue: Callable[[], dict[str, str]]
    repeats: bool = False


def wish(name: str, random: Random) -> Wish:
    """The wish of this name: whoever makes it with the same numbers gets the same."""
    makers = {
        _many: 5,
        _single: 40,
        _chain: 5,
        _group: 3,
    }
    maker = random.choices(list(makers), list(makers.values()))[0]
    return maker(name, random)


def _single(name: str, random: Random) -> Wish:
    kinds: dict[str, tuple[int, dict[str, Any]]] = {
        "quick": (30, {}),
        "nap": (30, {"seconds": _seconds(random)}),
        "threaded": (12, {"seconds": _seconds(random)}),
        "flaky": (10, {"failures": random.randint(1, 2)}),
        "doomed": (5, {}),
        "drowsy": (5, {}),
        "isolated": (2, {"seconds": 0.01}),
    }
    kind = random.choices(list(kinds), [weight for weight, _ in kinds.values()])[0]
    payload = {"key": name, **kinds[kind][1]}
    options: dict[str, Any] = {"priority": random.choice((0, 0, 0, 5, -5))}
    if delayed := random.random() < 0.1:
        options["delay"] = round(random.uniform(0.1, 3.0), 3)
    if repeats := random.random() < 0.4:
        options["idempotency_key"] = name
    if TENANTS:
        options["tenant"] = random.choice(TENANTS)
    using = getattr(program, kind).using(**options)
    want = Wanted(kind=kind, delay=options["delay"] if delayed else 0.0)
    return Wish(name, {name: want}, lambda: {name: using.enqueue(**payload).id}, repeats)


def _seconds(random: Random) -> float:
    """Mostly milliseconds; a few long enough to be running whenever something happens."""
    return round(random.uniform(0.5, 3.0) if random.random() < 0.25 else random.uniform(0.005, 0.05), 4)


def _many(name: str, random: Random) -> Wish:
    keys = [f"{name}.{number}" for number in range(random.randint(5, 30))]

    def enqueue() -> dict[str, str]:
        handles = program.quick.enqueue_many([{"key": key} for key in keys])
        return {key: handle.id for key, handle in zip(keys, handles, strict=True)}

    return Wish(name, {key: Wanted(kind="quick") for key in keys}, enqueue)


def _chain(name: str, random: Random) -> Wish:
    keys = [f"{name}.{number}" for number in range(3)]
    tasks = {
        key: Wanted(kind="link", follows=keys[number - 1] if number else None)
        for number, key in enumerate(keys)
    }

    def enqueue() -> dict[str, str]:
        first = program.link.step(key=keys[0])
        steps = [first, *(program.link.step(key=key, before=RESULT) for key in keys[1:])]
        handle = app.sync_client.enqueue(chain(*steps))
        return dict(zip(keys, [handle.id, *handle.following], strict=True))

    return Wish(name, tasks, enqueue)


def _group(name: str, random: Random) -> Wish:
    keys = [f"{name}.{number}" for number in range(3)]
    last = f"{name}.last"
    tasks = {key: Wanted(kind="nap") for key in keys} | {last: Wanted(kind="link", after=tuple(keys))}

    def enqueue() -> dict[str, str]:
        members = [program.nap.step(key=key, seconds=0.01) for key in keys]
        then = program.link.step(key=last, before=RESULT)
        handles = app.sync_client.enqueue_group(members, then)
        return {key: handle.id for key, handle in zip([*keys, last], handles, strict=True)}

    return Wish(name, tasks, enqueue)


class Producer:
    """Hands in wishes at a steady pace, however long the store takes."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._name = options["name"]
        self._seed = options["seed"]
        self._number = options["wishes"]
        self._every = 1 / options["per_second"]
        path = FOLDER / f"wishes-{self._name}.jsonl"
        notes = list(read([path])) if path.exists() else []
        self._tried = {note.wish for note in notes if isinstance(note, Tried)}
        self._done = {note.wish for note in notes if isinstance(note, Acknowledged | Refused)}
        self._diary = Diary(path)

    def run(self) -> None:
        """Everything that has not been acknowledged and may be tried (again)."""
        began, paced = monotonic(), 0
        never = threading.Event()
        for number in range(self._number):
            name = f"{self._name}-{number}"
            made = wish(name, Random(f"{self._seed} {name}"))
            if name in self._done or (name in self._tried and not made.repeats):
                continue
            never.wait(began + paced * self._every - monotonic())
            paced += 1
            self._hand_in(made)

    def _hand_in(self, made: Wish) -> None:
        if made.name not in self._tried:
            self._diary.write(Tried(wish=made.name, tasks=made.tasks, repeats=made.repeats))
        for _ in range(MAX_TRIES if made.repeats else 1):
            try:
                ids = made.enqueue()
            except StoreError as error:
                if not error.transient:
                    raise
                threading.Event().wait(PATIENCE)
                continue
            self._diary.write(Acknowledged(wish=made.name, ids=ids), sync=True)
            return


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if given.pop("may_fill", False):
        watch_for_full(FOLDER)
    TENANTS = given.pop("tenants", TENANTS)
    lines.DEADLINE_SECONDS = given.pop("deadline", lines.DEADLINE_SECONDS)
    Producer(given).run()
