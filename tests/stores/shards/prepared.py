"""Stores of several shards with a given map."""

from collections.abc import Mapping

from windlass._model.record import Routes, ShardMap
from windlass._store.protocol import Store
from windlass._stores.shards import ShardedStore

ONE_OPEN = ShardMap(
    id="m",
    version=2,
    home="a",
    shards=("a", "b"),
    routes=Routes(open=("a",)),
    former=(Routes(open=("a", "b")),),
)
"""All new tasks go to a; half of the queues may have tasks on b, too."""


class PreparedShards(ShardedStore):
    """A store of several shards that have a map already when it is opened first."""

    def __init__(self, stores: Mapping[str, Store], shard_map: ShardMap) -> None:
        super().__init__(stores)
        self._prepared = shard_map

    async def open(self) -> None:
        if self.shards.watch.map is None:
            home = self.shards[self._prepared.home]
            await home.call(home.store.put, self._prepared)
        await super().open()
