"""The memory that a ready task with a payload of 200 bytes takes, its indexes included, beside the peers."""

from benchmarks.figures import BYTES, Figure, Findings, Target
from benchmarks.parts.plan import Plan
from benchmarks.parts.redis.sides import WINDLASS, Side, able, empty, started
from benchmarks.processes import run
from tests.servers.redis import VOLATILE, Program

SERVERS: dict[str, Program] = {"Redis": "redis", "Valkey": "valkey"}
TEXT = 180  # bytes: with its name and the number a payload of about 200
AT_MOST = 900.0


def measure(plan: Plan) -> Findings:
    """Fill a new server of each kind once for every side: the figure does not depend on the load."""
    findings = Findings()
    for name, program in SERVERS.items():
        for side in able(plan.without):
            used = _used(plan, program, side)
            memory = findings.add(Figure(f"memory, {name}", "a ready task", side.who, BYTES, (used,)))
            if side is WINDLASS:
                findings.targets.append(Target(f"memory of a ready task on {name}", memory, at_most=AT_MOST))
    return findings


def _used(plan: Plan, program: Program, side: Side) -> float:
    with started(plan.folder, VOLATILE, program) as (url, client):
        before = empty(client)
        run(side.program, "preload", **side.at(url), number=plan.bulk, size=TEXT)
        used: float = (client.info("memory")["used_memory"] - before) / plan.bulk
    return used
