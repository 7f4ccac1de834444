"""Webhooks and e-mails a second from one worker, beside the same calls in bare asyncio; into a local sink."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks import databases
from benchmarks.databases import Databases
from benchmarks.figures import RATE, Figure, Findings, Target, ratio
from benchmarks.parts.plan import Plan, url
from benchmarks.processes import ROOT, run
from benchmarks.progress import tell
from benchmarks.sides import WINDLASS

PART = "ready-made handlers"
KINDS = ("webhooks", "e-mails")
SLOTS = (32, 256)
AT_LEAST = 0.8
BARE = "bare asyncio"
MEMORY, SQLITE, POSTGRES = STORES = "worker, memory", "worker, SQLite", "worker, Postgres"


def measure(plan: Plan) -> Findings:
    """Run all variants in turn, round after round."""
    findings = Findings()
    with _sink() as (http, smtp), databases.started(plan.folder, plan.version) as server:
        findings.facts.update(server.described())
        for kind in KINDS:
            for slots in SLOTS:
                _compare(findings, plan, server, kind, {"slots": slots, "http": http, "smtp": smtp})
    return findings


def _compare(findings: Findings, plan: Plan, server: Databases, kind: str, options: dict[str, int]) -> None:
    rates: dict[str, list[float]] = {who: [] for who in (BARE, *STORES)}
    chosen = {"kind": kind.replace("-", ""), "number": plan.delivered, **options}
    what = f"{kind}, {options['slots']} at once"
    for turn in range(plan.rounds):
        path = plan.path(f"handlers-{kind}-{options['slots']}-{turn}")
        rates[BARE].append(run("on_handlers", "bare", **chosen)["rate"])
        rates[MEMORY].append(run("on_handlers", "work", store="memory://", **chosen)["rate"])
        rates[SQLITE].append(run("on_handlers", "work", store=url(path), **chosen)["rate"])
        with server.fresh(WINDLASS) as database:
            rates[POSTGRES].append(run("on_handlers", "work", store=database, **chosen)["rate"])
        tell(f"handlers … {what}, round {turn + 1}")
    figures = {who: findings.add(Figure(PART, what, who, RATE, tuple(rates[who]))) for who in rates}
    beside = {who: findings.add(ratio(PART, what, figures[who], figures[BARE])) for who in STORES}
    findings.targets.append(Target(f"{what}, beside bare asyncio", beside[MEMORY], at_least=AT_LEAST))


@contextmanager
def _sink() -> Iterator[tuple[int, int]]:
    """Run the sink; its ports for HTTP and SMTP."""
    command = [sys.executable, "-m", "benchmarks.runs.sink"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            http, smtp = process.stdout.readline().split()
            yield int(http), int(smtp)
        finally:
            process.stdin.close()
