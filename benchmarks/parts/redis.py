"""On Redis: drain, enqueue, pickup and memory; windlass compared with Huey, which keeps no record of a task.

Each variant runs on an empty server, with the append-only file synced every second and at every write.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import redis

from benchmarks.figures import BYTES, MICROSECONDS, MILLISECONDS, RATE, Figure, Findings, Target, ratio
from benchmarks.parts.plan import Plan
from benchmarks.processes import run, running
from tests.servers.redis import DURABLE, EVERY_SECOND, Program, Redis

SYNCS: Mapping[str, Mapping[str, str]] = {"everysec": EVERY_SECOND, "always": DURABLE}
FAST = 0.001  # seconds: the poll interval of an idle Huey, which blocks on Redis anyway
DRAINED, BULK, ONE = "tasks, 1 worker process", "bulk of 1,000", "one, blocking"
AT_LEAST, AT_MOST_BYTES = 6.0, 900.0

Answers = dict[tuple[str, str, str, str], list[float]]  # part, what, who, unit


def measure(plan: Plan) -> Findings:
    """Run each in turn, round after round."""
    answers: Answers = {}
    version = ""
    for sync, settings in SYNCS.items():
        with Redis.start(plan.folder, program="redis", settings=settings) as server:
            client: Any = redis.Redis(port=server.port)
            version = client.info("server")["redis_version"]
            for _ in range(plan.rounds):
                for key, value in _round(plan, server, client):
                    part, what, who, unit = key
                    answers.setdefault((f"{part}, Redis {sync}", what, who, unit), []).append(value)
            client.close()
    findings = Findings()
    findings.facts["redis"] = version
    figures = {
        (part, what, who): findings.add(Figure(part, what, who, unit, tuple(values)))
        for (part, what, who, unit), values in answers.items()
    }
    for sync in SYNCS:
        part = f"drain, Redis {sync}"
        times = findings.add(
            ratio(part, "tasks a second", figures[part, DRAINED, "windlass"], figures[part, DRAINED, "huey"])
        )
        findings.targets.append(Target(f"drain beside Huey on Redis, {sync}", times, at_least=AT_LEAST))
    programs: dict[str, Program] = {"Redis": "redis", "Valkey": "valkey"}
    for name, program in programs.items():
        for who in ("windlass", "huey"):
            used = _memory(plan, program, who)
            memory = findings.add(Figure(f"memory, {name}", "a ready task", who, BYTES, (used,)))
            if (program, who) == ("valkey", "windlass"):
                target = Target("memory of a ready task on Valkey", memory, at_most=AT_MOST_BYTES)
                findings.targets.append(target)
    return findings


def _memory(plan: Plan, program: Program, who: str) -> float:
    """Return the bytes that a ready task takes, its indexes included."""
    with Redis.start(plan.folder, program=program) as server:
        client: Any = redis.Redis(port=server.port)
        before = _emptied(client)
        where = {"url": server.url} if who == "windlass" else {"path": server.url}
        run(f"on_{who}", "preload", **where, number=plan.bulk)
        used: float = (client.info("memory")["used_memory"] - before) / plan.bulk
        client.close()
    return used


def _round(plan: Plan, server: Redis, client: Any) -> Iterator[tuple[tuple[str, str, str, str], float]]:
    url = server.url
    for who, program in (("windlass", "on_windlass"), ("huey", "on_huey")):
        where: dict[str, Any] = {"url": url} if who == "windlass" else {"path": url}
        slots = {"slots": plan.slots} if who == "windlass" else {}
        _emptied(client)
        filled = run(program, "preload", **where, number=plan.drained)
        if "rate" in filled:
            yield ("enqueue", BULK, who, RATE), filled["rate"]
        drained = run(program, "drain", **where, number=plan.drained, **slots)
        yield ("drain", DRAINED, who, RATE), drained["rate"]
        yield ("drain", "processor time a task", who, MICROSECONDS), drained["processor"]
        _emptied(client)
        enqueued = run(program, "enqueue", **where, number=plan.enqueued)
        yield ("enqueue", ONE, who, RATE), enqueued["rate"]
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
