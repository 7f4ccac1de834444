"""The tasks that the shop enqueues: many types, tenants and priorities, as lists of steps."""

from collections.abc import Iterator
from itertools import cycle

from msgspec import Struct

from windlass import RESULT, Step, chain

from . import shop

TENANTS = ("acme", "globex", "initech", "umbra")
LEAVING = "umbra"
POISONED = 5
ALBUM_PHOTOS = 5


class Plan(Struct, frozen=True, kw_only=True):
    """The number of tasks of each kind that varies with the total."""

    receipts: int
    photos: int
    items: int
    charges: int
    rows: int
    chains: int
    albums: int
    letters: int

    @classmethod
    def of(cls, tasks: int) -> "Plan":
        """Divide about `tasks` tasks among the kinds."""
        small = min(1.0, tasks / 1_000)
        chains, albums, letters = round(12 * small), round(8 * small), max(3, round(40 * small))
        rest = max(40, tasks - POISONED - 3 * chains - albums * (ALBUM_PHOTOS + 1) - letters - 4)
        return cls(
            receipts=rest * 42 // 100,
            photos=rest * 20 // 100,
            items=rest * 15 // 100,
            charges=rest * 15 // 100,
            rows=rest - rest * 92 // 100,
            chains=chains,
            albums=albums,
            letters=letters,
        )


def backlog(plan: Plan) -> list[Step]:
    """The tasks of the start: types and tenants mixed, then rows that fail in every attempt."""
    tenants = cycle(TENANTS)
    row = shop.import_row.using(tenant="acme")
    piles: list[list[Step]] = [
        [shop.send_receipt.using(tenant=next(tenants)).step(order=n) for n in range(plan.receipts)],
        [shop.resize_photo.using(tenant=next(tenants)).step(photo=n) for n in range(plan.photos)],
        [shop.sync_inventory.using(tenant=next(tenants)).step(item=n) for n in range(plan.items)],
        [row.step(row=n, price=f"{n}.95") for n in range(plan.rows)],
    ]
    return [*_merged(piles), *(row.step(row=10_000 + n, price="n/a") for n in range(POISONED))]


def _merged(piles: list[list[Step]]) -> list[Step]:
    """Merge the piles, each spread evenly over the whole length."""
    spread = [
        (position / len(pile), number, step)
        for number, pile in enumerate(piles)
        for position, step in enumerate(pile)
    ]
    return [step for _, _, step in sorted(spread, key=lambda entry: entry[:2])]


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
    photo, publish = shop.resize_photo.using(tenant="globex"), shop.publish_album.using(tenant="globex")
    for album in range(plan.albums):
        photos = [photo.step(photo=100 * album + n) for n in range(ALBUM_PHOTOS)]
        yield photos, publish.step(photos=RESULT)


def special_tasks(plan: Plan) -> list[Step]:
    """A delayed cleanup, a CPU-bound task, a long one and newsletters for tomorrow, which are cancelled."""
    letter = shop.send_newsletter.using(delay="1d", tenant=LEAVING)
    return [
        shop.clean_up.using(delay="6s").step(),
        shop.reprice_catalogue.step(rounds=800_000),
        shop.export_orders.using(tenant=LEAVING, priority="high").step(year=2025),
        *(letter.step(reader=n) for n in range(plan.letters)),
    ]
