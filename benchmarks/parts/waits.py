"""Many calls that wait for results in one process: what they read and use, how late they learn of the end.

Another process ends the tasks, so nobody tells the waiting one. `HTTP`: the process waits on a server's store
over HTTP. `GET ?wait`: as many requests wait at a server, whose reads and processor are measured. Both are on
SQLite.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import product
from typing import Any

from benchmarks.figures import MILLISECONDS, PERCENT, RATE, Figure, Findings, Target, percentile, ratio
from benchmarks.parts.plan import Plan
from benchmarks.parts.queues import STORES, NewStore
from benchmarks.processes import Answer, run, running
from benchmarks.progress import tell

PART = "waiting"
PROGRAM = "on_windlass_waits"
MEMORY, HTTP, GET = "memory", "HTTP", "GET ?wait"
MANY = 1_000
MOST_READS, MOST_PROCESSOR, LATEST, MOST_TIMES = 50, 5, 250, 1.5


def measure(plan: Plan) -> Findings:
    """Measure each store with each number of waiting calls, round after round."""
    answers: dict[tuple[str, int], list[Answer]] = {}
    findings = Findings()
    with ExitStack() as stack:
        named = [name for name in plan.waits.stores if name in STORES]
        new_stores = {name: STORES[name](plan, stack, findings) for name in {*named, "sqlite"}}
        ways: dict[str, Callable[[int], Answer]] = {
            MEMORY: partial(_in_memory, plan),
            HTTP: partial(_over_http, plan, new_stores["sqlite"]),
            GET: partial(_by_get, plan, new_stores["sqlite"]),
            **{name: partial(_on_store, plan, new_stores[name]) for name in named},
        }
        for turn, name, number in product(range(plan.rounds), plan.waits.stores, plan.waits.numbers):
            answer = ways[name](number)
            answers.setdefault((name, number), []).append(answer)
            tell(f"waiting … round {turn + 1}, {number} on {name}: {answer['idle']['reads']:.1f} reads/s")
    for (name, number), found in answers.items():
        _add(findings, f"{number:,} on {name}", found, is_bound=number == MANY)
    return findings


def _add(findings: Findings, who: str, answers: list[Answer], *, is_bound: bool) -> None:
    def figure(what: str, unit: str, value: Callable[[Answer], float], at_most: float) -> None:
        made = findings.add(Figure(PART, what, who, unit, tuple(map(value, answers))))
        if is_bound:
            findings.targets.append(Target(f"{what}, {who}", made, at_most=at_most))

    figure("reads, nothing ends", RATE, lambda one: one["idle"]["reads"], MOST_READS)
    figure("processor, nothing ends", PERCENT, lambda one: one["idle"]["processor"], MOST_PROCESSOR)
    figure("reads, tasks end", RATE, lambda one: one["ending"]["reads"], MOST_READS)
    findings.add(
        Figure(PART, "processor, tasks end", who, PERCENT, tuple(a["ending"]["processor"] for a in answers))
    )
    late = [[seconds * 1e3 for seconds in one["late"]] for one in answers]
    findings.add(Figure(PART, "late, p50", who, MILLISECONDS, tuple(percentile(one, 0.5) for one in late)))
    figure("late, p99", MILLISECONDS, lambda one: percentile(one["late"], 0.99) * 1e3, LATEST)
    if "alone" in answers[0]:
        alone, beside = (
            findings.add(
                Figure(PART, "enqueue, p50", f"{how}, {who}", MILLISECONDS, tuple(a[how] for a in answers))
            )
            for how in ("alone", "beside")
        )
        times = findings.add(ratio(PART, "enqueue", beside, alone))
        if is_bound:
            findings.targets.append(Target(f"enqueue beside {who}", times, at_most=MOST_TIMES))


def _in_memory(plan: Plan, number: int) -> Answer:
    return run(PROGRAM, "wait", url="memory://", **_options(plan, number))


def _on_store(plan: Plan, new_store: NewStore, number: int) -> Answer:
    with new_store() as url:
        return _waited(plan, url, url, number)


def _over_http(plan: Plan, new_store: NewStore, number: int) -> Answer:
    with new_store() as url, _served(plan, url, number) as (port, _):
        return _waited(plan, f"http://127.0.0.1:{port}", url, number)


def _by_get(plan: Plan, new_store: NewStore, number: int) -> Answer:
    with (
        new_store() as url,
        _served(plan, url, number) as (port, server),
        running(PROGRAM, "get", url=url, port=port, number=number) as waiting,
    ):
        server.say("go")
        server.until_ready()
        run(PROGRAM, "end", url=url, number=number, over=plan.waits.over)
        late = waiting.answer()
        server.say("stop")
        measured: Answer = server.answer() | late
        return measured


def _waited(plan: Plan, url: str, behind: str, number: int) -> Answer:
    """Wait on a store; the process that ends the tasks uses what is behind it."""
    with running(PROGRAM, "wait", url=url, **_options(plan, number)) as waiting:
        run(PROGRAM, "end", url=behind, number=number, over=plan.waits.over)
        return waiting.answer()


def _options(plan: Plan, number: int) -> dict[str, Any]:
    return {"number": number, "seconds": plan.waits.idle, "over": plan.waits.over}


@contextmanager
def _served(plan: Plan, url: str, number: int) -> Iterator[tuple[int, Any]]:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    with running(PROGRAM, "serve", url=url, port=port, number=number, seconds=plan.waits.idle) as server:
        yield port, server
