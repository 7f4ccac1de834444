"""Cuts the power at random moments of a trace and judges what a store finds afterwards."""

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from random import Random

from tests.power.disk import Disk, Synced, Truncated
from tests.power.record import DATABASE, NOTHING, Acknowledged, Began, Event, digest
from windlass import Filter, Page, State
from windlass._stores.sqlite import SQLiteStore
from windlass.testing.conformance.steps import complete, enqueue_one, settle_now, worker_on

ENDED = (State.COMPLETED, State.CANCELLED, State.DEAD)


@dataclass
class Promises:
    """What had been acknowledged when the power went."""

    digest: str = NOTHING
    enqueued: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    under_way: set[int] = field(default_factory=set)

    def hear(self, event: Event) -> None:
        match event:
            case Began(number, what):
                self.under_way.add(number)
                if what == "replay":
                    self.ended.clear()  # An operator may bring back what had ended.
            case Acknowledged():
                self.under_way.discard(event.number)
                self.digest = event.digest
                self.enqueued.update(event.enqueued)
                self.ended.update(event.ended)


@dataclass
class Cut:
    """One loss of power: after which event, what the disk held, what was promised."""

    after: int
    files: dict[str, bytes]
    promises: Promises
    next_digest: str | None  # of the request that was under way, if it was alone


def cuts(trace: Sequence[Event], number: int, random: Random) -> Iterator[Cut]:
    """So many cuts, in order of time; half of them around a commit's last moments."""
    moments = [
        index
        for index, event in enumerate(trace)
        if isinstance(event, Synced | Truncated | Acknowledged | Began)
    ]
    chosen = sorted(
        [random.randrange(len(trace)) for _ in range(number - number // 2)]
        + [random.choice(moments) for _ in range(number // 2)]
    )
    disk, promises, position = Disk(), Promises(), 0
    for after in chosen:
        while position <= after:
            event = trace[position]
            if isinstance(event, Began | Acknowledged):
                promises.hear(event)
            else:
                disk.do(event)
            position += 1
        now = Promises(promises.digest, set(promises.enqueued), set(promises.ended), set(promises.under_way))
        yield Cut(after, disk.after_loss(random), now, _next_digest(trace, position, now.under_way))


def _next_digest(trace: Sequence[Event], position: int, under_way: set[int]) -> str | None:
    for event in trace[position:] if under_way else ():
        if isinstance(event, Acknowledged) and event.number in under_way:
            return event.digest
    return None


def judge(cut: Cut, folder: Path) -> list[str]:
    """What is wrong with the store after this cut; an empty list is what we want."""
    file = _restore(cut, folder)
    try:
        with closing(sqlite3.connect(file)) as connection:
            found = connection.execute("PRAGMA integrity_check").fetchall()
        if found != [("ok",)]:
            return [f"damaged: {found[:3]}"]
        says = digest(file)
    except sqlite3.DatabaseError as error:
        return [f"damaged: {error}"]
    wrong = asyncio.run(_work_again(file, cut.promises))
    expected = {cut.promises.digest} | ({cut.next_digest} if cut.promises.under_way else set())
    if not wrong and "" not in expected and says not in expected:
        wrong.append(f"half done: the file says {says}, not one of {expected}")
    return wrong


def _restore(cut: Cut, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path, content in cut.files.items():
        (folder / PurePath(path).name).write_bytes(content)
    return folder / DATABASE


async def _work_again(file: Path, promises: Promises) -> list[str]:
    """Open the store as after a restart: it must hold what was promised, and work."""
    store = SQLiteStore(file)
    await store.open()
    wrong = []
    states = {}
    ids = tuple(promises.enqueued | promises.ended)
    for start in range(0, len(ids), 1000):
        page = Page(limit=1000)
        states |= {
            t.id: t.state for t in (await store.find(Filter(ids=ids[start : start + 1000]), page)).items
        }
    if lost := promises.enqueued - states.keys():
        wrong.append(f"lost: {len(lost)} tasks whose enqueue was acknowledged")
    if undone := [task_id for task_id in promises.ended if states.get(task_id) not in ENDED]:
        wrong.append(f"undone: {len(undone)} settlements that were acknowledged")
    worker = await worker_on(store)
    task_id = await enqueue_one(store, queue="afterwards")
    claimed = await worker.claim_one("afterwards")
    assert claimed.task.id == task_id
    await settle_now(store, complete(claimed))
    await store.close()
    return wrong
