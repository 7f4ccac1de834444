"""The overview: are we backed up? What is wrong stands first, each with the page that says more."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ..._documents.alerts import AlertDocument
from ..._documents.queues import OverviewDocument, QueueDocument
from ..._documents.schedules import ScheduleDocument
from ..._documents.tasks import FailureDocument
from ..._html.formats import number, segment
from ..._http.resources.alerts import list_alerts
from ..._http.resources.events import get_overview
from ..._http.resources.history import get_history
from ..._http.resources.schedules import list_schedules
from ..._http.resources.tasks import list_failures
from ..._http.resources.work import list_workers
from ..._policy.input.quote import counted
from ..charts import PERIODS, backlog, chosen_period, failed, failure_share, per_minute, throughput
from ..page import Pages
from ..view import View

overview = Pages()

STATES = ("waiting", "scheduled", "ready", "running", "dead")
MAX_NAMED = 5
"""Queues, schedules and workers that the overview shows."""

MAX_TROUBLES = 10
"""Troubles that the overview shows: without a worker, each of thousands of queues is one."""


class Trouble(Struct, frozen=True, kw_only=True):
    """Something that needs a person; `page` says more. `tone`: "bad" or "warn"."""

    text: str
    page: str
    tone: str = "bad"
    command: str = ""


@overview.screen("/", "overview.html", "Overview", bound=True)
async def show_overview(view: View) -> Mapping[str, Any]:
    """Show totals, what is wrong, the busiest queues, workers and what comes next."""
    seen, alerts, schedules, workers, failures, history = await asyncio.gather(
        view.call(get_overview),
        _alerts(view),
        _schedules(view),
        _workers(view),
        _failures(view),
        _history(view),
    )
    queues = sorted(seen.queues, key=_business, reverse=True)
    troubles = [*_troubles(seen, alerts)]
    return {
        "overview": seen,
        "total": {state: seen.counts[state] for state in STATES},
        "exact": seen.exact,
        "oldest": max((queue for queue in queues if queue.counts["ready"]), key=_age, default=None),
        "troubles": troubles[:MAX_TROUBLES],
        "more_troubles": max(len(troubles) - MAX_TROUBLES, 0),
        "queues": queues[:MAX_NAMED],
        "more_queues": max(seen.number - MAX_NAMED, 0),
        "failures": failures,
        "history": history,
        "schedules": schedules,
        "workers": workers,
        "is_new": not any(seen.counts.values()) and not seen.workers,
        "store": view.service.app.store_name,
    }


def _age(queue: QueueDocument) -> float:
    return queue.oldest_ready


def _business(queue: QueueDocument) -> tuple[float, int]:
    """Return what the busiest queues have most of."""
    return queue.oldest_ready, sum(queue.counts[state] for state in ("ready", "running", "dead", "scheduled"))


def _troubles(seen: OverviewDocument, alerts: Sequence[AlertDocument]) -> Iterator[Trouble]:
    for alert in alerts:
        if alert.state == "raised":
            letters = counted(alert.number, "dead letter")
            yield Trouble(text=f"Alert {alert.name} is raised: {letters}.", page="alerts")
    if seen.keeper is False:
        yield Trouble(
            text="No keeper runs: schedules do not fire, retries do not become ready, and tasks of dead "
            "workers are not rescued. Workers, `windlass serve` and `windlass keeper` run one.",
            page="health",
        )
    for one in seen.unhandled or ():
        yield Trouble(
            text=f"No worker of queue {one.queue} handles type {one.type}: {counted(one.number, 'task')} "
            f"{'waits' if one.number == 1 else 'wait'}. Deploy its handler or, if it was renamed, add the "
            f"name to aliases= of the new type.",
            page=f"queues/{segment(one.queue)}",
        )
    for queue in seen.queues:
        waiting = queue.counts["ready"]
        if waiting and queue.workers == 0 and not queue.paused and queue.closed_until is None:
            yield Trouble(
                text=f"No worker serves queue {queue.queue}: {number(waiting, exact=queue.exact)} "
                f"{'task is' if waiting == 1 else 'tasks are'} ready.",
                page=f"queues/{segment(queue.queue)}",
                command="windlass worker APP",
            )
        if queue.paused:
            ready = f"{number(waiting, exact=queue.exact)} ready" if waiting else "nothing is ready"
            yield Trouble(
                text=f"Queue {queue.queue} is paused: {ready}.",
                page=f"queues/{segment(queue.queue)}",
                tone="warn",
            )


async def _alerts(view: View) -> list[AlertDocument]:
    return (await view.call(list_alerts)).items if view.may_call(list_alerts) else []


async def _failures(view: View) -> list[FailureDocument]:
    """Return the failures with the most dead letters."""
    return (await view.call(list_failures, query={"limit": MAX_NAMED})).items


async def _history(view: View) -> Mapping[str, Any] | None:
    """Return charts of the chosen period, and what happened in its last minute; None for bound keys."""
    if view.caller.tenant is not None:  # history is not kept by tenant
        return None
    period = chosen_period(view.query("period"))
    found, recent = await asyncio.gather(
        view.call(get_history, query={"period": period}), view.call(get_history, query={"period": "10m"})
    )
    last = recent.points[-6:]
    return {
        "period": period,
        "periods": PERIODS,
        "throughput": throughput(found),
        "backlog": backlog(found),
        "per_minute": per_minute(last, lambda one: one.completed),
        "failure_share": failure_share(last),
        "recent": {
            "completed": [one.completed for one in recent.points],
            "failed": [failed(one) for one in recent.points],
            "depth": [one.depth for one in recent.points],
        },
    }


async def _schedules(view: View) -> list[ScheduleDocument]:
    """Return the schedules that fire next."""
    if not view.may_call(list_schedules):
        return []
    found = [one for one in (await view.call(list_schedules)).items if one.next_at is not None]
    return sorted(found, key=lambda one: (one.next_at, one.name))[:MAX_NAMED]


async def _workers(view: View) -> Mapping[str, Any] | None:
    """Return how busy the workers are; None for who may not see them."""
    if not view.may_call(list_workers):
        return None
    alive = [one for one in (await view.call(list_workers)).items if one.alive and not one.keeper]
    busiest = sorted(alive, key=lambda one: (-one.busy / (one.slots or 1), one.name))
    slots, busy = sum(one.slots for one in alive), sum(min(one.busy, one.slots) for one in alive)
    return {"number": len(alive), "slots": slots, "busy": busy, "busiest": busiest[:MAX_NAMED]}
