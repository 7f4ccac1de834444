"""Which combinations of promise, parameter and store run: those that can prove something new.

`make test` and `make test-rest` leave out only what is left out here; WINDLASS_TESTS=full runs it, too.
"""

from collections import defaultdict
from collections.abc import Sequence

import pytest

from tests.examples import FULL, REST

# In the sample these keep every promise with one parameter out of four, each with another; the rest has the
# other three.
SAMPLED = ("postgres", "valkey", "jetstream", "http to memory", "encrypted memory", "shards")

# Stores of the sample on another server, behind a pooler or in a wrapper, none of which has rules of its own:
# that each promise holds with each parameter, those have shown. Here one parameter out of four shows that
# nothing is lost on the way, also in the rest.
COMPOSED = (
    *("postgres 15", "pgbouncer", "redis 7", "jetstream cluster"),
    *("encrypted sqlite", "encrypted postgres", "shards of postgres", "shards of valkey"),
    *("http to sqlite", "http to postgres", "http to valkey", "http to jetstream", "http to shards"),
)
# HTTP carries each promise to memory, and each of these stores keeps it without HTTP: two of the five do.
SERVED = COMPOSED[-5:]
SERVED_EACH = 2
FORMS = 4

Promise = tuple[object, str]


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out combinations; where all of them run, mark what the sample leaves out as `full`."""
    sampled = _parameters_left_out(items, SAMPLED)
    if FULL:
        for item in sampled:
            item.add_marker(pytest.mark.full)
    out = set[pytest.Item]() if FULL else sampled
    if REST:
        out = _parameters_left_out(items, COMPOSED) | _served_left_out(items)
    config.hook.pytest_deselected(items=[*out])
    items[:] = [item for item in items if item not in out]


def _parameters_left_out(items: list[pytest.Item], stores: Sequence[str]) -> set[pytest.Item]:
    """All but one out of FORMS of the parameters of each promise of the conformance suite."""
    forms: dict[tuple[Promise, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.path.name == "test_conformance.py" and (store := _store(item)) in stores:
            forms[_promise(item), store].append(item)
    return {
        item
        for (_, store), several in forms.items()
        for number, item in enumerate(several)
        if number % FORMS != stores.index(store) % min(FORMS, len(several))
    }


def _served_left_out(items: list[pytest.Item]) -> set[pytest.Item]:
    """What leaves each promise on SERVED_EACH of these stores, in turns; twins have their own numbers."""
    served = [item for item in items if _store(item) in SERVED and not item.get_closest_marker("more")]
    turns = {promise: turn for turn, promise in enumerate(dict.fromkeys(map(_promise, served)))}
    return {
        item
        for item in served
        if (turns[_promise(item)] + SERVED.index(_store(item))) % len(SERVED) >= SERVED_EACH
    }


def _promise(item: pytest.Item) -> Promise:
    return item.parent, getattr(item, "originalname", item.name)


def _store(item: pytest.Item) -> str:
    """The form of store that a test runs on; "" if it has none."""
    return item.callspec.params.get("factory", "") if hasattr(item, "callspec") else ""
