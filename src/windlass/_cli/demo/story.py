"""The story: what happens in the shop, step by step, each when the one before has had its effect."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from ... import App, By, Filter, State, Step
from ..._model.attempt import Attempt
from ..._model.state import PENDING
from ..._model.task import Task, TaskId
from ...errors import WindlassError
from . import orders, shop
from .crew import Crew
from .watch import Seen, Watch

OPERATOR = By(who="dana@shop", why="demo")
AT_ONCE = 500
DOUBLE_CLICKS = 10  # one order in so many is sent twice
_DEAD = Filter(states=(State.DEAD,))


class Story:
    """One run of it. `ledger` holds the id of every task whose enqueue was acknowledged."""

    def __init__(self, app: App, folder: Path, watch: Watch, tell: Callable[[str], None]) -> None:
        self._app = app
        self._watch = watch
        self._tell = tell
        self.crew = Crew(folder)
        self.ledger: set[TaskId] = set()
        self.folded = 0  # double clicks that became one task
        self.gone: dict[TaskId, Sequence[Attempt]] = {}

    async def run(self, plan: orders.Plan, workers: int) -> None:
        """From the first order to the last dead letter; no worker outlives it."""
        try:
            async with asyncio.TaskGroup() as group:
                looking = group.create_task(self._watch.run())
                await self._happen(plan, workers)
                await self.crew.dismiss()
                looking.cancel()
        except* WindlassError as several:
            raise several.exceptions[0] from None
        finally:
            await self.crew.dismiss()

    async def _happen(self, plan: orders.Plan, workers: int) -> None:
        await self._open_shop(plan, workers)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._customers(plan))
            await self._think_better(plan)
            await self._kill_one()
            await self._redeploy_one()
        await self._until_quiet()
        await self._tend_the_dead()
        await self._until_quiet()
        self._tell("every task has ended, and the workers go home")

    # -- the steps -----------------------------------------------------------------------------------

    async def _open_shop(self, plan: orders.Plan, workers: int) -> None:
        for part in orders.parts(orders.backlog(plan), AT_ONCE):
            await self._enqueue(part)
        self._tell(f"{len(self.ledger):,} tasks have piled up overnight")
        await self._enqueue(orders.reports(plan))
        for photos, album in orders.albums(plan):
            self._keep(await self._app.client.enqueue_group(photos, album))
        await self._enqueue([*orders.odds_and_ends(), *orders.letters(plan)])
        first = await self.crew.hire()  # keeps house for the others
        others = [self.crew.hire() for _ in range(workers - 1)]
        names = [first, *await asyncio.gather(*others)]
        self._tell(f"{len(names)} worker processes start: {', '.join(names)}")

    async def _customers(self, plan: orders.Plan) -> None:
        """Orders one by one, now and then a double click: one key, one task."""
        for order in range(plan.charges):
            charge = shop.charge_card.using(
                tenant=orders.TENANTS[order % len(orders.TENANTS)], idempotency_key=f"order-{order}"
            )
            handles = [await charge.aenqueue(order=order)]
            if order % DOUBLE_CLICKS == 0:
                handles.append(await charge.aenqueue(order=order))
            self.folded += sum(not handle.created for handle in handles)
            self._keep(handles)
            await asyncio.sleep(0.01)
        self._tell(f"{plan.charges:,} orders came in; {self.folded} double clicks made no second charge")

    async def _think_better(self, plan: orders.Plan) -> None:
        await self._until_share(0.15)
        await self._watch.until(lambda seen: seen.of(State.RUNNING) > 0)
        leaving = Filter(tenants=(orders.LEAVING,), types=("send_newsletter", "export_orders"))
        number = await self._app.operator.cancel(leaving, by=By(who=OPERATOR.who, why="the customer left"))
        self._tell(
            f"{orders.LEAVING} leaves: {number} tasks cancelled, {number - plan.letters} of them running"
        )

    async def _kill_one(self) -> None:
        await self._until_share(0.3)
        victim = self.crew.names[1]
        held = await self._busy_with_clips(victim)
        pid = await self.crew.kill(victim)
        at = self._watch.seconds
        self._tell(f"kill -9 {victim} (pid {pid}), with {held} tasks under way")
        self._tell(f"{await self.crew.hire()} takes its place")
        await self._watch.until(lambda seen: seen.running[victim] == 0)
        waited = self._watch.seconds - at
        self._tell(f"the keeper rescued what {victim} held, {waited:.1f} s after its death")

    async def _redeploy_one(self) -> None:
        await self._until_share(0.6)
        leaver = self.crew.names[1]
        held = await self._busy_with_clips(leaver)
        await self.crew.retire(leaver)
        self._tell(f"{leaver} was told to stop while it ran {held} tasks; it handed back what took too long")
        self._tell(f"{await self.crew.hire()} takes its place")

    async def _tend_the_dead(self) -> None:
        dead = [task async for task in self._app.operator.every(_DEAD)]
        self._tell(f"{len(dead)} dead letters after {dead[0].attempt} attempts each: {_why(dead[0])}")
        mended, hopeless = dead[0], dead[1]
        by = By(who=OPERATOR.who, why="price corrected")
        await self._app.operator.replay_one(mended.id, by=by, payload=b'{"row":10000,"price":"12.95"}')
        self._tell(f"{by.who} replays one with a corrected payload")
        self.gone[hopeless.id] = await self._app.operator.attempts(hopeless.id)
        await self._app.operator.discard_one(hopeless.id, by=By(who=OPERATOR.who, why="row is a footer"))
        self._tell(f"{OPERATOR.who} discards another; the audit log keeps who and why")

    # -- how -----------------------------------------------------------------------------------------

    async def _enqueue(self, steps: list[Step]) -> None:
        handles = await self._app.client.enqueue_many(steps)
        self.ledger.update(task_id for handle in handles for task_id in (handle.id, *handle.following))

    def _keep(self, handles: Sequence[orders.Acknowledged]) -> None:
        self.ledger.update(handle.id for handle in handles)

    async def _busy_with_clips(self, name: str) -> int:
        """See to it that this worker is in the middle of something long; answers with how much it holds."""
        clips = [
            shop.render_clip.using(tenant="initech").step(clip=n) for n in range(2 * len(self.crew.names))
        ]
        unfinished = Filter(states=(State.READY, State.RUNNING), types=("render_clip",))
        while True:
            left = [task async for task in self._app.operator.every(unfinished)]
            if any(task.state is State.RUNNING and task.worker == name for task in left):
                return self._watch.seen.running[name] or 1
            if not left:  # the others may have taken them all
                await self._enqueue(clips)
            await self._watch.until(lambda _: True)

    async def _until_share(self, share: float) -> None:
        await self._watch.until(lambda seen: seen.ended >= share * seen.total)

    async def _until_quiet(self) -> None:
        def quiet(seen: Seen) -> bool:
            return seen.of(State.RUNNING, *PENDING) == 0

        await self._watch.until(quiet)


def _why(task: Task) -> str:
    return task.error.message if task.error else "no reason recorded"
