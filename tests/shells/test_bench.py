"""The benchmarks run, verify their own runs, and report which targets were met. Figures are not tested."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.figures import Figure, Findings, Target, percentile, ratio  # noqa: E402
from benchmarks.report import table, verdicts  # noqa: E402


def bench(*arguments: str, seconds: float = 55) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)


@pytest.mark.system
@pytest.mark.full
def test_a_quick_run_measures_every_part_and_keeps_it_as_json(tmp_path: Path) -> None:
    done = bench("--quick", "--results", str(tmp_path))

    assert done.returncode in {0, 1}, done.stderr  # so small a run may miss any target
    assert "void" not in done.stderr
    (kept,) = tmp_path.glob("*.json")
    parts = {figure["part"].partition(",")[0] for figure in json.loads(kept.read_text())["figures"]}
    assert parts == {"drain", "enqueue", "pickup", "worker loop", "other handlers", "worker memory"}


@pytest.mark.system
@pytest.mark.timeout(180)
@pytest.mark.full
def test_a_quick_run_beside_the_peers_on_postgres(tmp_path: Path) -> None:
    """Without graphile-worker, which npm would have to fetch."""
    left_out = ("--without", "graphile-worker", "--without", "procrastinate")

    done = bench("postgres", "--quick", *left_out, "--results", str(tmp_path), seconds=170)

    assert done.returncode in {0, 1}, done.stderr
    assert "void" not in done.stderr
    (kept,) = tmp_path.glob("*.json")
    figures = json.loads(kept.read_text())["figures"]
    parts = {figure["part"] for figure in figures}
    assert parts == {"enqueue, Postgres", "drain, Postgres", "pickup, Postgres"}
    lost = [figure for figure in figures if figure["what"] == "lost or repeated"]
    assert {value for figure in lost for value in figure["values"]} == {0.0}
    assert list(tmp_path.glob("*.svg"))


@pytest.mark.system
@pytest.mark.full
def test_a_quick_run_against_a_commit() -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.against",
        "HEAD",
        "--quick",
        "--rounds",
        "2",
        "--on",
        "sqlite",
    ]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=55, check=False)

    assert done.returncode in {0, 1}, done.stderr  # so small a run may miss any bound
    assert "invalid run" not in done.stderr
    for what in ("bulk of 1,000", "drain, 500 slots", "drain, 32 slots", "one, blocking", "POST /tasks"):
        assert f"{what} on sqlite" in done.stdout


@pytest.mark.system
def test_a_commit_that_is_not_there_is_refused() -> None:
    command = [sys.executable, "-m", "benchmarks.against", "no-such-commit"]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=55, check=False)

    assert done.returncode == 1
    assert "no commit no-such-commit" in done.stderr


@pytest.mark.system
def test_an_unknown_part_is_refused() -> None:
    done = bench("nonsense")

    assert done.returncode == 2
    assert "no part nonsense" in done.stderr


def test_a_ratio_is_taken_round_by_round() -> None:
    ours = Figure("p", "w", "windlass", "/s", (100.0, 30.0, 80.0))
    theirs = Figure("p", "w", "huey", "/s", (10.0, 2.0, 8.0))

    assert ratio("p", "w", ours, theirs).values == (10.0, 15.0, 10.0)


def test_a_missed_target_is_reported() -> None:
    figure = Figure("p", "w", "windlass : huey", "x", (9.0, 9.5, 11.0))
    findings = Findings([figure], [Target("drain", figure, at_least=10), Target("loop", figure, at_most=10)])

    assert [target.is_met for target in findings.targets] == [False, True]
    assert "at least 10 x, found 9.50 x: NOT MET" in verdicts(findings)


def test_the_table_shows_median_and_spread() -> None:
    figure = Figure("drain", "tasks", "windlass", "/s", (900.0, 1200.0, 40_000.0))

    assert "1,200 /s  (900 to 40,000)" in table(Findings([figure]))


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1)])
def test_a_percentile_is_a_value_that_occurred(share: float, expected: float) -> None:
    assert percentile([float(n) for n in range(1, 101)], share) == expected
