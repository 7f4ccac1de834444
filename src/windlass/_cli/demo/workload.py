"""The tasks that the shop enqueues: many types, tenants and priorities, as lists of steps."""

from collections.abc import Iterator
from itertools import cycle, islice
from typing import Protocol

from msgspec import Struct

from ... import RESULT, Step, chain
from ..._model.task import TaskId
from . import shop

TENANTS = ("acme", "globex", "initech", "umbra")
LEAVING = "umbra"
NIGHT = "6s"
POISON = "n/a"


class Acknowledged(Protocol):
    """The handle of an acknowledged enqueue."""

    id: TaskId


class Plan(Struct, frozen=True, kw_only=True):
    """The number of tasks of each kind."""

    receipts: int
    photos: int
    items: int
    charges: int
    rows: int
    poisoned: int = 5
    chains: int = 12
    albums: int = 8
    album_photos: int = 5
    letters: int = 40

    @classmethod
    def of(cls, tasks: int) -> "Plan":
        """Divide about `tasks` tasks among the kinds."""
        small = min(1.0, tasks / 1_000)
        fixed = cls(
            receipts=0,
            photos=0,
            items=0,
            charges=0,
            rows=0,
            chains=max(1, round(12 * small)),
            albums=max(1, round(8 * small)),
            letters=max(3, round(40 * small)),
        )
        rest = max(tasks - fixed.extra, 40)
        return Plan(
            receipts=rest * 42 // 100,
            photos=rest * 20 // 100,
            items=rest * 15 // 100,
            charges=rest * 15 // 100,
            rows=rest - rest * 92 // 100,
            chains=fixed.chains,
            albums=fixed.albums,
            letters=fixed.letters,
        )

    @property
    def extra(self) -> int:
        """The number of tasks that does not grow with the total."""
        return self.poisoned + 3 * self.chains + self.albums * (self.album_photos + 1) + self.letters + 4


def backlog(plan: Plan) -> list[Step]:
    """The tasks of the start, types and tenants mixed."""
    tenants = cycle(TENANTS)
    piles: list[list[Step]] = [
        [shop.send_receipt.using(tenant=next(tenants)).step(order=n) for n in range(plan.receipts)],
        [shop.resize_photo.using(tenant=next(tenants)).step(photo=n) for n in range(plan.photos)],
        [shop.sync_inventory.using(tenant=next(tenants)).step(item=n) for n in range(plan.items)],
        [shop.import_row.using(tenant="acme").step(row=n, price=f"{n}.95") for n in range(plan.rows)],
    ]
    return [*_merged(piles), *poisoned(plan)]


def poisoned(plan: Plan) -> list[Step]:
    """Rows that fail in every attempt."""
    return [
        shop.import_row.using(tenant="acme").step(row=10_000 + n, price=POISON) for n in range(plan.poisoned)
    ]


def reports(plan: Plan) -> list[Step]:
    """Chains of three; each step takes the result of the one before."""
    return [
        chain(
            shop.collect_sales.step(week=week),
            shop.build_report.step(sales=RESULT),
            shop.mail_report.step(report=RESULT),
        )
        for week in range(1, plan.chains + 1)
    ]


def albums(plan: Plan) -> Iterator[tuple[list[Step], Step]]:
    """Groups: photos, and the task that waits for all of them."""
    for album in range(plan.albums):
        photos = [
            shop.resize_photo.using(tenant="globex").step(photo=100 * album + n)
            for n in range(plan.album_photos)
        ]
        yield photos, shop.publish_album.using(tenant="globex").step(photos=RESULT)


def special_tasks() -> list[Step]:
    """A delayed cleanup, a CPU-bound task, and a long one that is cancelled."""
    return [
        shop.clean_up.using(delay=NIGHT).step(),
        shop.reprice_catalogue.step(rounds=800_000),
        shop.export_orders.using(tenant=LEAVING, priority="high").step(year=2025),
    ]


def letters(plan: Plan) -> list[Step]:
    """Newsletters for tomorrow, which are cancelled before."""
    return [
        shop.send_newsletter.using(delay="1d", tenant=LEAVING).step(reader=n) for n in range(plan.letters)
    ]


def _merged(piles: list[list[Step]]) -> list[Step]:
    """Merge the piles, each spread evenly over the whole length."""
    spread = [
        (position / max(len(pile), 1), number, step)
        for number, pile in enumerate(piles)
        for position, step in enumerate(pile)
    ]
    return [step for _, _, step in sorted(spread, key=lambda entry: entry[:2])]


def parts(steps: list[Step], size: int) -> Iterator[list[Step]]:
    """Split the list into pieces of at most `size`."""
    pieces = iter(steps)
    while piece := list(islice(pieces, size)):
        yield piece
