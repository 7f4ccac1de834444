"""A reply to a claim that comes too late: its tasks may be another worker's by now, and do not start."""

import asyncio
from datetime import timedelta
from typing import Any

from tests.loops.workers import assert_nothing_held, eventually, watched, working
from windlass import Context
from windlass._model.record import Session


async def test_a_claim_answered_after_its_session_ended_is_not_started() -> None:
    app, _ = watched()
    fences: list[int] = []

    @app.task(backoff=lambda _attempt, _draw: timedelta(0))
    async def quick(*, ctx: Context) -> None:
        fences.append(ctx.fence)

    hold = _HoldAfter()
    async with working(app, keeper=True, lease=1, poll=0.05) as worker:
        ended = worker.held.session
        app.store.inner.settle = hold.around(app.store.inner.settle)  # type: ignore[attr-defined]
        handle = await quick.aenqueue()  # type: ignore[call-arg]
        await asyncio.wait_for(hold.done.wait(), 5)
        await app.store.remove(Session, ended)
        await eventually(lambda: worker.held.session != ended)
        hold.gate.set()
        await handle.wait(timeout=5)

    assert 1 not in fences
    assert len(fences) == 1
    await assert_nothing_held(app)


async def test_a_claim_answered_after_the_worker_gave_up_its_leases_is_handed_back() -> None:
    app, watch = watched()
    runs: list[tuple[int, int]] = []

    @app.task
    async def quick(*, ctx: Context) -> None:
        runs.append((ctx.attempt, ctx.fence))

    hold = _HoldAfter()
    async with working(app, lease=1, heartbeat=0.1, poll=0.05) as worker:
        app.store.inner.settle = hold.around(app.store.inner.settle)  # type: ignore[attr-defined]
        handle = await quick.aenqueue()  # type: ignore[call-arg]
        await asyncio.wait_for(hold.done.wait(), 5)
        watch.down.add("heartbeat")
        await eventually(lambda: worker._silent)
        hold.gate.set()
        await eventually(lambda: app.operator.attempts(handle.id))
        assert runs == []
        watch.down.clear()
        await handle.wait(timeout=5)

    assert runs == [(1, 2)]


class _HoldAfter:
    """Keeps the answer of the next settle that grants something until the gate opens."""

    def __init__(self) -> None:
        self.done, self.gate = asyncio.Event(), asyncio.Event()

    def around(self, settle: Any) -> Any:
        async def held(batch: Any, claim: Any = None) -> Any:
            settled = await settle(batch, claim)
            if settled.claimed and not self.done.is_set():
                self.done.set()
                await self.gate.wait()
            return settled

        return held
