"""Live workers by queue: whether one serves a queue, and whether one there handles a type."""

from collections import defaultdict
from collections.abc import Iterable

from .._model.record import Worker

_Types = frozenset[str] | None
"""What a worker has handlers for; None: not known, so perhaps all."""


class LiveWorkers:
    """The live workers of one moment. A look-up takes as long whether they name one queue or thousands."""

    __slots__ = ("_by_queue", "_everywhere")

    def __init__(self, workers: Iterable[Worker]) -> None:
        self._everywhere: list[_Types] = []
        self._by_queue: dict[str, list[_Types]] = defaultdict(list)
        # The workers of one deployment name the same queues and types, which are then read once.
        for all_queues, queues, types in {(one.all_queues, one.queues, one.types) for one in workers}:
            known = None if types is None else frozenset(types)
            if all_queues:
                self._everywhere.append(known)
                continue
            for queue in queues:
                self._by_queue[queue].append(known)

    def serves(self, queue: str) -> bool:
        """Whether one of them claims tasks of this queue."""
        return bool(self._everywhere) or queue in self._by_queue

    def handles(self, queue: str, type_name: str) -> bool:
        """Whether one that serves this queue has a handler for this type, as far as is known."""
        serving = (*self._everywhere, *self._by_queue.get(queue, ()))
        return any(types is None or type_name in types for types in serving)
