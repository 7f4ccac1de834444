"""Run pytest and write down, as JSON, which tests failed: recorded_pytest.py REPORT [PYTEST'S ARGUMENTS].

Also whether the run was whole: every file could be collected, and every test that was collected ran.

`--only REPORT`, before pytest's arguments, runs only the tests that failed in that report.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

LONGEST_LINE = 200  # characters


class Record:
    """A plugin of the process that reports: the others, of xdist, send it what they see."""

    def __init__(self, only: set[str] | None) -> None:
        self._only = only
        self.collected: set[str] = set()
        self.reported: set[str] = set()
        self.has_broken_files = False
        self.failures: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.passed: list[str] = []  # of those it was told to run

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if self._only is not None:
            config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in self._only])
            items[:] = [item for item in items if item.nodeid in self._only]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.has_broken_files |= report.failed

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.collected.update(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Iterable[str]) -> None:
        self.collected.update(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reported.add(report.nodeid)
        if report.failed:
            self.failures.setdefault(report.nodeid, first_line(report.longrepr))
        elif report.skipped or report.when == "call":
            self.counts[report.outcome] += 1
            if self._only and report.passed:
                self.passed.append(report.nodeid)

    def written(self) -> dict[str, Any]:
        return {
            "is_whole": not self.has_broken_files and self.collected <= self.reported,
            "failures": self.failures,
            "number_passed": self.counts["passed"],
            "passed": sorted({*self.passed} - self.failures.keys()),
        }


def first_line(shown: Any) -> str:
    """The first line of an exception, else the last line of what was printed."""
    crash = getattr(shown, "reprcrash", None)
    lines = crash.message.splitlines()[:1] if crash else str(shown).splitlines()[-1:]
    return "".join(lines)[:LONGEST_LINE]


def main(report: str, *arguments: str) -> int:
    only = None
    if arguments[:1] == ("--only",):
        only, arguments = {*json.loads(Path(arguments[1]).read_text())["failures"]}, arguments[2:]
    record = Record(only)
    status = pytest.main([*arguments], plugins=[record])
    Path(report).write_text(json.dumps(record.written()))
    return int(status)


if __name__ == "__main__":
    sys.path[0] = str(Path.cwd())  # as `python -m pytest` has it
    sys.exit(main(*sys.argv[1:]))
