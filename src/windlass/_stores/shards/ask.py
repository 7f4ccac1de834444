"""Find, count and act on the tasks of all shards: what operators use."""

from collections.abc import Sequence
from typing import TypeAlias

from msgspec.structs import replace

from ..._model.attempt import Attempt
from ..._model.filter import (
    Action,
    Count,
    Dimension,
    Expire,
    Filter,
    LoggedAction,
    Page,
    Replay,
    Rewrite,
    Slice,
)
from ..._model.task import Task, TaskId
from ..._model.transition import Applied
from ...errors import StoreUnavailable
from ..rules.audit import is_about_tasks
from .connection.handle import OnShards, check_complete
from .connection.shard import Shard
from .pages import merge_counts, merge_slices
from .routes import places

Part: TypeAlias = tuple[str, Action, Filter]


class ShardTasks(OnShards):
    """The verbs about tasks over all shards.

    Each is atomic on each shard. A shard that does not answer fails the call, which names it: what the others
    say would look complete. Calls about some queues only, or some tasks, need only the shards of those.
    """

    def _names(self, where: Filter) -> Sequence[str]:
        """Return the shards that may have such tasks."""
        if where.ids is not None:
            known = {self._shards.places.get(task_id) for task_id in where.ids}
            if known and known.issubset(self._shards.map.shards):
                return [name for name in self._shards.names if name in known]
        if where.queues:
            found = {name for queue in where.queues for name in places(self._shards.map, queue)}
            return [name for name in self._shards.names if name in found]
        return self._shards.names

    async def find(self, where: Filter, page: Page) -> Slice[Task]:
        """Merge the pages of the shards by id."""
        await self._shards.ready()

        async def ask(shard: Shard) -> Slice[Task]:
            if where.ids is None:
                return await shard.call_unless_silent(shard.store.find, where, page)
            return await shard.call_within(shard.store.find, where, page)  # quick, and others may have them

        answers, errors = await self._shards.each(self._names(where), ask)
        for name, found in answers.items():
            self._shards.places.add([task.id for task in found.items], name)
        merged = merge_slices([*answers.values()], page, lambda task: task.id)
        if where.ids is None:
            check_complete(answers, errors)
        elif errors and len(merged.items) < len(set(where.ids)):
            raise next(iter(errors.values()))
        return merged

    async def count(self, where: Filter, by: Sequence[Dimension], *, sized: bool = False) -> Sequence[Count]:
        """Add up the counts of the shards."""
        await self._shards.ready()
        answers = await self._shards.all_but_missing(
            self._names(where),
            lambda shard: shard.call_unless_silent(shard.store.count, where, by, sized=sized),
        )
        return merge_counts(answers.values())

    async def ended(self, ids: Sequence[TaskId]) -> Sequence[TaskId]:
        """Return the tasks of which every shard that may have them answers that they have ended."""
        await self._shards.ready()
        known = {name: [one for one in ids if self._may_have(name, one)] for name in self._shards.names}

        async def ask(shard: Shard) -> Sequence[TaskId]:
            return await shard.call_within(shard.store.ended, known[shard.name])

        answers, errors = await self._shards.each([name for name in known if known[name]], ask)
        if errors and not answers:
            raise next(iter(errors.values()))
        still_open = {one for name in known for one in {*known[name]}.difference(answers.get(name, ()))}
        return [one for one in ids if one not in still_open]

    def _may_have(self, name: str, task_id: TaskId) -> bool:
        place = self._shards.places.get(task_id)
        return place == name or place not in self._shards.map.shards

    async def attempts(self, task_id: TaskId) -> Sequence[Attempt]:
        """Return the attempts from the shard of the task."""
        await self._shards.ready()
        name = (await self._shards.locate([task_id])).get(task_id, self._shards.map.home)
        if name is None:
            raise StoreUnavailable(f"a shard that may have task {task_id} did not answer; retry")
        shard = self._shards[name]
        return await shard.call(shard.store.attempts, task_id)

    # -- actions -------------------------------------------------------------------------------------

    async def apply(self, action: Action, where: Filter, limit: int) -> Applied:
        """Act on one shard after another, up to `limit` tasks in all. Expiries skip shards that are down."""
        await self._shards.ready()
        applied = Applied()
        problem: StoreUnavailable | None = None
        answered = False
        for name, its_action, its_filter in await self._parts(action, where):
            left = limit - len(applied.ids)
            if left <= 0:
                break
            spread = _spread(its_action, len(applied.ids))
            try:
                shard = self._shards[name]
                applied += await shard.call_unless_silent(shard.store.apply, spread, its_filter, left)
                answered = True
            except StoreUnavailable as error:
                problem = error
                if not isinstance(action, Expire):
                    raise _partly(error, len(applied.ids)) from error
        if problem is not None and not answered:
            raise problem
        return applied

    async def _parts(self, action: Action, where: Filter) -> Sequence[Part]:
        if isinstance(action, LoggedAction) and not is_about_tasks(action):
            return [(self._shards.map.home, action, where)]
        if not isinstance(action, Rewrite):
            return [(name, action, where) for name in self._names(where)]
        found = await self._shards.locate([one.id for one in action.tasks])
        if None in found.values():
            raise StoreUnavailable("a shard that may have some of the tasks did not answer; retry")
        names = [name for name in self._shards.names if name in found.values()]
        return [
            (
                name,
                replace(action, tasks=tuple(one for one in action.tasks if found.get(one.id) == name)),
                where,
            )
            for name in names
        ]


def _spread(action: Action, done: int) -> Action:
    """Continue a replay over time on the next shard, after those that were replayed on others."""
    if isinstance(action, Replay) and action.run_at is not None and done:
        return replace(action, run_at=action.due_at(done, action.run_at))
    return action


def _partly(error: StoreUnavailable, done: int) -> StoreUnavailable:
    if not done:
        return error
    return StoreUnavailable(f"{error}; {done:,} tasks of other shards were changed; repeat it for the rest")
