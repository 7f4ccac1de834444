"""The scenario: what happens in the shop, step by step, each once the one before has had its effect."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from windlass import App, By, Filter, Handle, State, Step
from windlass.errors import WindlassError
from windlass.types import Attempt

from . import shop, workload
from .display import counted
from .monitor import Monitor
from .workers import WorkerPool

OPERATOR = "dana@shop"
BATCH = 500
DOUBLE_CLICKS = 10  # every tenth order is sent twice


class Scenario:
    """One run. `ledger` holds the id of every task whose enqueue was acknowledged."""

    def __init__(self, app: App, folder: Path, monitor: Monitor, tell: Callable[[str], None]) -> None:
        self._app = app
        self._monitor = monitor
        self._tell = tell
        self.workers = WorkerPool(folder)
        self.ledger: set[str] = set()
        self.discarded: dict[str, Sequence[Attempt]] = {}

    async def run(self, plan: workload.Plan, workers: int) -> None:
        """Run all steps; no worker is left running afterwards."""
        try:
            async with asyncio.TaskGroup() as group:
                polling = group.create_task(self._monitor.run())
                await self._run_steps(plan, workers)
                await self.workers.stop_all()
                polling.cancel()
        except* WindlassError as several:
            raise several.exceptions[0] from None
        finally:
            await self.workers.stop_all()

    async def _run_steps(self, plan: workload.Plan, workers: int) -> None:
        await self._open_shop(plan, workers)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._place_orders(plan))
            await self._cancel_tenant(plan)
            await self._kill_worker()
            await self._replace_worker()
        await self._wait_until_all_ended()
        await self._handle_dead_letters()
        await self._wait_until_all_ended()
        self._tell("every task has ended; the workers stop")

    # -- steps ---------------------------------------------------------------------------------------

    async def _open_shop(self, plan: workload.Plan, workers: int) -> None:
        backlog = workload.backlog(plan)
        for start in range(0, len(backlog), BATCH):
            await self._enqueue(backlog[start : start + BATCH])
        self._tell(f"{counted(len(self.ledger), 'task')} are waiting from last night")
        await self._enqueue(workload.reports(plan))
        for photos, album in workload.albums(plan):
            self._acknowledge(await self._app.client.enqueue_group(photos, album))
        await self._enqueue(workload.special_tasks(plan))
        first = await self.workers.start()  # its keeper leads
        others = [self.workers.start() for _ in range(workers - 1)]
        names = [first, *await asyncio.gather(*others)]
        self._tell(f"{counted(len(names), 'worker process', 'worker processes')} start: {', '.join(names)}")

    async def _place_orders(self, plan: workload.Plan) -> None:
        """Enqueue orders one by one, some twice with one idempotency key."""
        duplicates = 0  # double clicks that created no second task
        for order in range(plan.charges):
            tenant = workload.TENANTS[order % len(workload.TENANTS)]
            charge = shop.charge_card.using(tenant=tenant, idempotency_key=f"order-{order}")
            handles = [await charge.aenqueue(order=order)]
            if order % DOUBLE_CLICKS == 0:
                handles.append(await charge.aenqueue(order=order))
            duplicates += sum(not handle.created for handle in handles)
            self._acknowledge(handles)
            await asyncio.sleep(0.01)
        self._tell(
            f"{counted(plan.charges, 'order')} placed; "
            f"{counted(duplicates, 'double click')} charged nobody twice"
        )

    async def _cancel_tenant(self, plan: workload.Plan) -> None:
        await self._wait_for_share(0.15)
        await self._monitor.until(lambda snapshot: snapshot.count(State.RUNNING) > 0)
        leaving = Filter(tenants=(workload.LEAVING,), types=("send_newsletter", "export_orders"))
        number = await self._app.operator.cancel(leaving, by=By(who=OPERATOR, why="the customer left"))
        self._tell(
            f"tenant {workload.LEAVING} leaves: {counted(number, 'task')} cancelled, "
            f"{number - plan.letters} of them while running"
        )

    async def _kill_worker(self) -> None:
        await self._wait_for_share(0.3)
        victim = self.workers.names[1]
        held = await self._busy_with_clips(victim)
        pid = await self.workers.kill(victim)
        killed_at = self._monitor.seconds
        self._tell(f"kill -9 {victim} (pid {pid}), which was running {counted(held, 'task')}")
        self._tell(f"{await self.workers.start()} replaces it")
        await self._monitor.until(lambda snapshot: snapshot.running[victim] == 0)
        waited = self._monitor.seconds - killed_at
        self._tell(f"the tasks of {victim} were rescued {waited:.1f} s after the kill")

    async def _replace_worker(self) -> None:
        await self._wait_for_share(0.6)
        leaver = self.workers.names[1]
        held = await self._busy_with_clips(leaver)
        await self.workers.stop(leaver)
        self._tell(
            f"{leaver} stopped while running {counted(held, 'task')}; it released those that took too long"
        )
        self._tell(f"{await self.workers.start()} replaces it")

    async def _handle_dead_letters(self) -> None:
        dead = [task async for task in self._app.operator.every(Filter(states=(State.DEAD,)))]
        error = dead[0].error.message if dead[0].error else "no error recorded"
        self._tell(
            f"{counted(len(dead), 'dead letter')} after {counted(dead[0].attempt, 'attempt')} each: {error}"
        )
        fixable, hopeless = dead[0].id, dead[1].id
        by = By(who=OPERATOR, why="price corrected")
        await self._app.operator.replay_one(fixable, by=by, payload=b'{"row":10000,"price":"12.95"}')
        self._tell(f"{OPERATOR} replays one with a corrected payload")
        self.discarded[hopeless] = await self._app.operator.attempts(hopeless)
        await self._app.operator.discard_one(hopeless, by=By(who=OPERATOR, why="row is a footer"))
        self._tell(f"{OPERATOR} discards another; the audit log keeps who did it and why")

    # -- helpers -------------------------------------------------------------------------------------

    async def _enqueue(self, steps: list[Step]) -> None:
        self._acknowledge(await self._app.client.enqueue_many(steps))

    def _acknowledge(self, handles: Iterable[Handle[Any]]) -> None:
        self.ledger.update(task_id for handle in handles for task_id in (handle.id, *handle.following))

    async def _busy_with_clips(self, name: str) -> int:
        """Wait until this worker runs a long task; return how many tasks it runs."""
        clip = shop.render_clip.using(tenant="initech")
        unfinished = Filter(states=(State.READY, State.RUNNING), types=("render_clip",))
        while True:
            left = [task async for task in self._app.operator.every(unfinished)]
            if any(task.state is State.RUNNING and task.worker == name for task in left):
                return self._monitor.latest.running[name] or 1
            if not left:  # other workers ran them all
                await self._enqueue([clip.step(clip=n) for n in range(2 * len(self.workers.names))])
            await self._monitor.until(lambda _: True)

    async def _wait_for_share(self, share: float) -> None:
        await self._monitor.until(lambda snapshot: snapshot.ended >= share * snapshot.total)

    async def _wait_until_all_ended(self) -> None:
        await self._monitor.until(lambda snapshot: snapshot.ended == snapshot.total)
