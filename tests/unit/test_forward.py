"""ForwardingStore: forwards every verb of the seam, with the same parameters."""

import inspect
from typing import Any

import pytest

from tests.unit.test_messages import methods
from windlass._store.forward import ForwardingStore
from windlass._store.protocol import Store

HANDLE = {"capabilities", "promise", "open", "close", "now", "join", "transaction", "wakes"}
VERBS = sorted(methods(Store) - HANDLE - {"another"})


class Recorder:
    """Stands in for a store; returns what it was called with."""

    def __getattr__(self, name: str) -> Any:
        async def call(*args: object) -> tuple[object, ...]:
            return name, *args

        return call


class Counted(ForwardingStore):
    """Notes the verbs that pass through `_forward`."""

    def __init__(self) -> None:
        super().__init__(Recorder())  # type: ignore[arg-type]
        self.verbs: list[str] = []

    def _forward(self, verb: str, method: Any, *args: Any, **kwargs: Any) -> Any:
        self.verbs.append(verb)
        return super()._forward(verb, method, *args, **kwargs)


def test_it_has_everything_a_store_has_except_another() -> None:
    assert methods(ForwardingStore) == methods(Store) - {"another"}


@pytest.mark.parametrize("verb", VERBS)
async def test_a_verb_is_forwarded_once_with_all_its_arguments(verb: str) -> None:
    store = Counted()
    parameters = inspect.signature(getattr(Store, verb)).parameters
    arguments = list(range(len(parameters) - 1))

    assert await getattr(store, verb)(*arguments) == (verb, *arguments)
    assert store.verbs == [verb]
    assert [*inspect.signature(getattr(ForwardingStore, verb)).parameters] == [*parameters]
