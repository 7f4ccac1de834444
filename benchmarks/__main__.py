"""Run the parts, print the table, save the JSON, and fail if a target is missed."""

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks import machine, plot, report
from benchmarks.figures import Findings
from benchmarks.parts import (
    beside,
    crowd,
    dashboard,
    drain,
    enqueue,
    fairness,
    growth,
    handlers,
    http,
    loop,
    pickup,
    postgres,
    queues,
    rates,
    stripes,
    waits,
)
from benchmarks.parts.jetstream import failover as jetstream_failover
from benchmarks.parts.jetstream import recovery as jetstream_recovery
from benchmarks.parts.jetstream import speed as jetstream_speed
from benchmarks.parts.jetstream import stores as jetstream_stores
from benchmarks.parts.plan import Plan, WaitSizes, quick
from benchmarks.parts.redis import fairness as redis_fairness
from benchmarks.parts.redis import growth as redis_growth
from benchmarks.parts.redis import memory as redis_memory
from benchmarks.parts.redis import peers as redis_peers
from benchmarks.parts.redis.sides import PEERS as REDIS_PEERS
from benchmarks.processes import RunFailed
from benchmarks.sides import SIDES

SQLITE = {
    "drain": drain.measure,
    "enqueue": enqueue.measure,
    "pickup": pickup.measure,
    "loop": loop.measure,
    "rates": rates.measure,
}
REDIS = {
    "redis-peers": redis_peers.measure,
    "redis-memory": redis_memory.measure,
    "redis-fairness": redis_fairness.measure,
    "redis-growth": redis_growth.measure,
}
JETSTREAM = {
    "jetstream-speed": jetstream_speed.measure,
    "jetstream-failover": jetstream_failover.measure,
    "jetstream-recovery": jetstream_recovery.measure,
    "jetstream-stores": jetstream_stores.measure,
}
GROUPS = {"sqlite": SQLITE, "redis": REDIS, "jetstream": JETSTREAM}
PARTS = SQLITE | {
    "postgres": postgres.measure,
    "growth": growth.measure,
    "stripes": stripes.measure,
    "fairness": fairness.measure,
    "beside": beside.measure,
    "crowd": crowd.measure,
    "queues": queues.measure,
    "waiting": waits.measure,
    "http": http.measure,
    "dashboard": dashboard.measure,
    "handlers": handlers.measure,
    **REDIS,
    **JETSTREAM,
}


def main() -> int:
    """Return 0 if every target is met, 1 if one is missed or a run is invalid."""
    asked = _asked()
    with tempfile.TemporaryDirectory(prefix="windlass-bench-", dir=asked.folder) as folder:
        Path(folder).chmod(0o711)  # the server does not run as root, and must be able to reach its data
        plan = _plan(Path(folder), asked)
        facts = machine.described(plan.folder)
        print(f"windlass, measured here; {plan.rounds} rounds, median (lowest to highest)\n")
        print(report.header(facts), flush=True)
        findings = Findings()
        try:
            for name in asked.parts:
                findings.extend(_measured(name, plan))
        except RunFailed as failure:
            print(f"{report.header(findings.facts)}\n{report.table(findings)}")
            print(f"\ninvalid run: {failure}", file=sys.stderr)
            return 1
    print(f"{report.header(findings.facts)}\n{report.table(findings)}\n\n{report.verdicts(findings)}")
    kept = report.save(facts | findings.facts, findings, asked.results)
    print(f"\n  {kept}\n  {plot.save(findings, kept.with_suffix('.svg'))}")
    return 0 if all(target.is_met for target in findings.targets) else 1


def _plan(folder: Path, asked: argparse.Namespace) -> Plan:
    plan = quick(folder) if asked.quick else Plan(folder=folder)
    return replace(
        plan,
        rounds=asked.rounds or plan.rounds,
        on_postgres=plan.on_postgres.scaled(asked.scale),
        crowd=replace(plan.crowd, workers=tuple(asked.workers) or plan.crowd.workers, store=asked.store),
        queues=replace(
            plan.queues,
            number=asked.queues or plan.queues.number,
            stores=tuple(one for one in asked.on if one in plan.queues.stores) or plan.queues.stores,
        ),
        waits=replace(plan.waits, stores=tuple(asked.on) or plan.waits.stores),
        version=asked.version,
        without=tuple(asked.without),
    )


def _measured(name: str, plan: Plan) -> Findings:
    started = time.perf_counter()
    print(f"\n  {name} …" if sys.stderr.isatty() else f"  {name} …", end="", file=sys.stderr, flush=True)
    load = machine.load()
    findings = PARTS[name](plan)
    findings.facts[f"load, {name}"] = load
    print(f" {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    return findings


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help=f"which of {', '.join(PARTS)}; sqlite is {', '.join(SQLITE)}, and the default; "
        f"redis is {', '.join(REDIS)}; jetstream is {', '.join(JETSTREAM)}",
    )
    parser.add_argument("--rounds", type=int, help="rounds per variant  [default: 5]")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: only shows that it runs")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of tasks on Postgres")
    parser.add_argument(
        "--workers",
        type=int,
        action="append",
        default=[],
        metavar="N",
        help="number of workers of the part crowd (repeatable)  [default: 100, 1,000, 3,000, 10,000]",
    )
    parser.add_argument(
        "--store", metavar="URL", help="store of the part crowd  [default: a new one on Postgres]"
    )
    parser.add_argument(
        "--queues", type=int, metavar="N", help="number of queues of the part queues  [default: 5,000]"
    )
    parser.add_argument(
        "--on",
        action="append",
        default=[],
        choices=WaitSizes().stores,
        help="a store of the parts queues and waiting (repeatable)  [default: each of these]",
    )
    parser.add_argument("--growth", action="store_true", help="add the growth runs on Postgres (long)")
    parser.add_argument(
        "--postgres",
        type=int,
        dest="version",
        metavar="MAJOR",
        help="Postgres version  [default: the newest]",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=[*(side.who for side in SIDES), *REDIS_PEERS],
        help="exclude a peer on Postgres or Redis (repeatable)",
    )
    parser.add_argument("--folder", type=Path, help="folder for the stores  [default: the temporary folder]")
    parser.add_argument("--results", type=Path, default=report.RESULTS, help="folder for JSON and plot")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - {*PARTS, *GROUPS}:
        known = ", ".join([*PARTS, *GROUPS])
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {known}")
    wanted = {*(asked.parts or ["sqlite"]), *(["growth"] if asked.growth else [])}
    wanted |= {part for name, parts in GROUPS.items() if name in wanted for part in parts}
    asked.parts = [name for name in PARTS if name in wanted]
    return asked


if __name__ == "__main__":
    sys.exit(main())
