"""On Redis: drain, enqueue, pickup and memory, beside Huey, BullMQ and Dramatiq.

Each variant runs on an empty server, with the append-only file synced every second and at every write. Of the
peers only BullMQ keeps a record of a task. Peers that are not installed are left out.
"""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import redis

from benchmarks import node
from benchmarks.figures import BYTES, MICROSECONDS, MILLISECONDS, RATE, Figure, Findings, Target, ratio
from benchmarks.parts.plan import Plan
from benchmarks.processes import Program as Command
from benchmarks.processes import run, running
from tests.servers.redis import DURABLE, EVERY_SECOND, Program, Redis

SYNCS: Mapping[str, Mapping[str, str]] = {"everysec": EVERY_SECOND, "always": DURABLE}
FAST = 0.001  # seconds: the poll interval of an idle Huey, which blocks on Redis anyway
DRAINED, BULK, ONE = "tasks, 1 worker process", "bulk of 1,000", "one, blocking"
PEERS = {"huey": "on_huey", "dramatiq": "on_dramatiq"}
SHARES = {"huey": 0.25, "dramatiq": 0.25, "bullmq": 0.5}  # of the tasks: rates are compared
AT_LEAST = {"huey": 6.0, "bullmq": 3.0}  # times their drain
SLOTS = 250  # as many as one script settles and claims
TEXT = 180  # bytes: with its name and the number a payload of about 200
AT_MOST_BYTES = 900.0

Answers = dict[tuple[str, str, str, str], list[float]]  # part, what, who, unit


def measure(plan: Plan) -> Findings:
    """Run each in turn, round after round."""
    answers: Answers = {}
    findings = Findings()
    peers = _peers(plan)
    for sync, settings in SYNCS.items():
        with Redis.start(plan.folder, program="redis", settings=settings) as server:
            client: Any = redis.Redis(port=server.port)
            findings.facts["redis"] = client.info("server")["redis_version"]
            for _ in range(plan.rounds):
                for key, value in _round(plan, peers, server, client):
                    part, what, who, unit = key
                    answers.setdefault((f"{part}, Redis {sync}", what, who, unit), []).append(value)
            client.close()
    figures = {
        (part, what, who): findings.add(Figure(part, what, who, unit, tuple(values)))
        for (part, what, who, unit), values in answers.items()
    }
    for sync in SYNCS:
        part = f"drain, Redis {sync}"
        for who in peers:
            mine, other = figures[part, DRAINED, "windlass"], figures[part, DRAINED, who]
            times = findings.add(ratio(part, "tasks a second", mine, other))
            if who in AT_LEAST:
                name = f"drain beside {who} on Redis, {sync}"
                findings.targets.append(Target(name, times, at_least=AT_LEAST[who]))
    _measure_memory(plan, peers, findings)
    return findings


def _peers(plan: Plan) -> dict[str, Command]:
    found: dict[str, Command] = {
        who: program for who, program in PEERS.items() if who not in plan.without and find_spec(who)
    }
    if "bullmq" not in plan.without and node.is_able():
        found["bullmq"] = node.BULLMQ.program()
    return found


def _measure_memory(plan: Plan, peers: Mapping[str, Command], findings: Findings) -> None:
    programs: dict[str, Program] = {"Redis": "redis", "Valkey": "valkey"}
    for name, program in programs.items():
        for who, command in {"windlass": "on_windlass", **peers}.items():
            used = _memory(plan, program, who, command)
            memory = findings.add(Figure(f"memory, {name}", "a ready task", who, BYTES, (used,)))
            if who == "windlass":
                findings.targets.append(
                    Target(f"memory of a ready task on {name}", memory, at_most=AT_MOST_BYTES)
                )


def _memory(plan: Plan, program: Program, who: str, command: Command) -> float:
    """Return the bytes that a ready task takes, its indexes included."""
    with Redis.start(plan.folder, program=program) as server:
        client: Any = redis.Redis(port=server.port)
        before = _emptied(client)
        run(command, "preload", **_where(who, server.url), number=plan.bulk, size=TEXT)
        used: float = (client.info("memory")["used_memory"] - before) / plan.bulk
        client.close()
    return used


def _where(who: str, url: str) -> dict[str, Any]:
    return {"url": url} if who == "windlass" else {"path": url}


def _round(
    plan: Plan, peers: Mapping[str, Command], server: Redis, client: Any
) -> Iterator[tuple[tuple[str, str, str, str], float]]:
    for who, program in {"windlass": "on_windlass", **peers}.items():
        where = _where(who, server.url)
        number = round(plan.drained * SHARES.get(who, 1))
        slots = {"slots": min(plan.slots, SLOTS)} if who == "windlass" else {}
        _emptied(client)
        filled = run(program, "preload", **where, number=number)
        if who in ("windlass", "bullmq"):
            yield ("enqueue", BULK, who, RATE), filled["rate"]
        drained = run(program, "drain", **where, number=number, **slots)
        yield ("drain", DRAINED, who, RATE), drained["rate"]
        yield ("drain", "processor time a task", who, MICROSECONDS), drained["processor"]
        _emptied(client)
        enqueued = run(program, "enqueue", **where, number=plan.enqueued)
        yield ("enqueue", ONE, who, RATE), enqueued["rate"]
        if who in ("windlass", "huey"):
            yield from _pickup(plan, who, str(program), where, client)


def _pickup(
    plan: Plan, who: str, program: str, where: dict[str, Any], client: Any
) -> Iterator[tuple[tuple[str, str, str, str], float]]:
    _emptied(client)
    polled = {} if who == "windlass" else {"delay": FAST}
    with running(program, "serve", **where, number=plan.picked_up, **polled) as worker:
        run(program, "send", **where, number=plan.picked_up, gap=plan.gap)
        seen = worker.answer()
    for point in ("p50", "p99"):
        yield ("pickup", f"two processes, {point}", who, MILLISECONDS), seen[point]


def _emptied(client: Any) -> int:
    """Delete everything on the server; return how much memory it then uses."""
    client.flushall()
    client.script_flush()
    used: int = client.info("memory")["used_memory"]
    return used
