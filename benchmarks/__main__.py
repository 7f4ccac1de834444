"""Run the parts, print the table, keep the JSON, and fail if a target is missed."""

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks import machine, report
from benchmarks.figures import Findings
from benchmarks.parts import drain, enqueue, loop, pickup, rates
from benchmarks.parts.plan import Plan, quick
from benchmarks.processes import RunFailed

PARTS = {
    "drain": drain.measure,
    "enqueue": enqueue.measure,
    "pickup": pickup.measure,
    "loop": loop.measure,
    "rates": rates.measure,
}


def main() -> int:
    """0: every target met; 1: one missed, or a run void."""
    asked = _asked()
    with tempfile.TemporaryDirectory(prefix="windlass-bench-", dir=asked.folder) as folder:
        plan = quick(Path(folder)) if asked.quick else Plan(folder=Path(folder))
        if asked.rounds:
            plan = replace(plan, rounds=asked.rounds)
        facts = machine.described(plan.folder)
        print(f"windlass, measured here; {plan.rounds} rounds, median (lowest to highest)\n")
        print(report.header(facts), flush=True)
        findings = Findings()
        try:
            for name in asked.parts or PARTS:
                findings.extend(_measured(name, plan))
        except RunFailed as failure:
            print(f"\nvoid: {failure}", file=sys.stderr)
            return 1
    print(f"{report.table(findings)}\n\n{report.verdicts(findings)}")
    print(f"\n  {report.save(facts, findings, asked.results)}")
    return 0 if all(target.is_met for target in findings.targets) else 1


def _measured(name: str, plan: Plan) -> Findings:
    started = time.perf_counter()
    print(f"\n  {name} …" if sys.stderr.isatty() else f"  {name} …", end="", file=sys.stderr, flush=True)
    findings = PARTS[name](plan)
    print(f" {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    return findings


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"which of {', '.join(PARTS)}; default all")
    parser.add_argument("--rounds", type=int, help="how often each variant is run, in turn; default 5")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: proves that it runs, and no more")
    parser.add_argument("--folder", type=Path, help="where to put the stores; default the temporary folder")
    parser.add_argument("--results", type=Path, default=report.RESULTS, help="where to keep the JSON")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return asked


if __name__ == "__main__":
    sys.exit(main())
