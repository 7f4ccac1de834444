"""The demo: in a pipe, interrupted, killed; and its proof on contradictory records."""

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from examples.demo.proof import (
    FAILED,
    REPLAYED,
    RESCUED,
    UNEXPLAINED,
    Evidence,
    Execution,
    Settlement,
    prove,
)
from tests.examples import sample
from windlass import State, Task
from windlass.types import Attempt, Audit

EXAMPLES = Path(__file__).parents[2] / "examples"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SMALL = ("--tasks", "150", "--workers", "2")
EXIT_SECONDS = 20


@contextmanager
def demo(folder: Path, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """Run the demo in a pipe, with its temporary folder inside `folder`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "demo", *SMALL, *options],
        cwd=EXAMPLES,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until(process: "subprocess.Popen[str]", words: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"the demo ended before {words!r}: {process.communicate()[1]}")


def workers_in(folder: Path) -> list[int]:
    """The ids of the processes whose working directory is, or was, inside the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cwd").readlink().is_relative_to(folder):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def wait_for_end(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], EXIT_SECONDS)[0], (
            f"process {pid} is still running after the demo"
        )
    finally:
        os.close(handle)


@pytest.mark.system
class TestDemo:
    def test_in_a_pipe_it_accounts_for_every_task_in_a_few_plain_lines(self, tmp_path: Path) -> None:
        with demo(tmp_path) as process:
            out, err = process.communicate(timeout=55)

        assert process.returncode == 0, out + err
        assert "The promise held" in out
        assert "kill -9 worker-2" in out
        assert re.search(r"rescued after a kill +[1-9]", out)
        assert re.search(r"settled twice +0 ", out)
        assert "\x1b" not in out
        assert len(out.splitlines()) < 80

    @pytest.mark.full
    def test_out_of_time_it_reports_not_finished(self, tmp_path: Path) -> None:
        with demo(tmp_path, "--tasks", "3000", "--seconds", "5") as process:
            out, _ = process.communicate(timeout=55)

        assert process.returncode == 1
        assert "Not finished" in out

    def test_it_leaves_no_files_or_processes(self, tmp_path: Path) -> None:
        with demo(tmp_path, "--seconds", "5") as process:
            process.communicate(timeout=55)

        assert list(tmp_path.iterdir()) == []
        assert workers_in(tmp_path) == []

    @pytest.mark.full
    def test_keep_keeps_the_store(self, tmp_path: Path) -> None:
        with demo(tmp_path, "--seconds", "5", "--keep") as process:
            out, _ = process.communicate(timeout=55)

        (store,) = tmp_path.glob("*/shop.db")
        assert str(store) in out

    @pytest.mark.parametrize("number", sample([signal.SIGINT], [signal.SIGTERM]))
    def test_an_interrupt_cleans_up(self, tmp_path: Path, number: signal.Signals) -> None:
        with demo(tmp_path) as process:
            until(process, "worker processes start")
            process.send_signal(number)
            process.communicate(timeout=EXIT_SECONDS)

        assert process.returncode == 130
        assert list(tmp_path.iterdir()) == []
        assert workers_in(tmp_path) == []

    def test_workers_end_when_the_demo_is_killed(self, tmp_path: Path) -> None:
        with demo(tmp_path) as process:
            until(process, "worker processes start")
            workers = workers_in(tmp_path)
            process.kill()
            process.wait()

        assert len(workers) >= 2
        for pid in workers:
            wait_for_end(pid)


class TestProof:
    def test_a_task_that_ran_once_proves_the_promise(self) -> None:
        proof = prove(evidence())

        assert proof.holds
        assert (proof.enqueued, proof.completed, proof.executions, proof.repeated) == (1, 1, 1, 0)

    def test_an_enqueued_task_that_is_not_in_the_store_is_lost(self) -> None:
        proof = prove(replace(evidence(), ledger=frozenset({"a", "b"})))

        assert (proof.lost, proof.holds) == (1, False)

    def test_a_discarded_task_is_not_lost(self) -> None:
        discard = Audit(id="1", at=NOW, who="dana", why="footer", action="discard", task_id="b")
        proof = prove(replace(evidence(), ledger=frozenset({"a", "b"}), audits=[discard]))

        assert (proof.lost, proof.discarded, proof.holds) == (0, 1, True)

    def test_a_task_that_nobody_enqueued_breaks_it(self) -> None:
        proof = prove(replace(evidence(), ledger=frozenset()))

        assert (proof.unknown, proof.holds) == (2, False)

    def test_two_receipts_for_one_end_break_it(self) -> None:
        twice = [Settlement("a", "completed"), Settlement("a", "completed")]
        proof = prove(replace(evidence(), settlements=twice))

        assert (proof.settled_twice, proof.holds) == (1, False)

    def test_an_end_after_a_completion_breaks_it(self) -> None:
        proof = prove(replace(evidence(), attempts={"a": [attempt(1), attempt(2, "failed")]}))

        assert (proof.settled_twice, proof.holds) == (1, False)

    def test_two_starts_under_one_lease_break_it(self) -> None:
        proof = prove(replace(evidence(), executions=[Execution("a", 1, 1), Execution("a", 1, 1)]))

        assert (proof.started_twice, proof.holds) == (1, False)

    def test_a_task_that_has_not_ended_breaks_it(self) -> None:
        proof = prove(replace(evidence(), tasks={"a": task(State.READY)}, attempts={"a": []}))

        assert (proof.unended, proof.holds) == (1, False)

    @pytest.mark.parametrize(
        ("before", "start", "reason"),
        [
            ([("failed", 1)], Execution("a", 2, 2), FAILED),
            ([("crashed", 2)], Execution("a", 3, 2), RESCUED),
            ([("failed", 1)], Execution("a", 2, 1), REPLAYED),
            ([], Execution("a", 3, 2), UNEXPLAINED),
        ],
    )
    def test_a_second_execution_has_the_reason_that_the_attempt_log_gives(
        self, before: list[tuple[str, int]], start: Execution, reason: str
    ) -> None:
        attempts = [attempt(fence, outcome) for outcome, fence in before] + [attempt(start.fence)]
        proof = prove(replace(evidence(), executions=[Execution("a", 1, 1), start], attempts={"a": attempts}))

        assert proof.reasons == {reason: 1}
        assert proof.holds is (reason != UNEXPLAINED)


def evidence() -> Evidence:
    """One task that ran once and completed."""
    return Evidence(
        ledger=frozenset({"a"}),
        tasks={"a": task(State.COMPLETED)},
        attempts={"a": [attempt(1)]},
        audits=[],
        executions=[Execution("a", 1, 1)],
        settlements=[Settlement("a", "completed")],
    )


def task(state: State) -> Task:
    return Task(
        id="a",
        type="t",
        payload=b"{}",
        root="a",
        queue="default",
        tenant="",
        priority=0,
        boost=0,
        state=state,
        attempt=1,
        max_attempts=4,
        fence=1,
        run_at=NOW,
        created_at=NOW,
    )


def attempt(fence: int, outcome: str = "returned") -> Attempt:
    return Attempt(
        task_id="a",
        number=1,
        fence=fence,
        worker="worker-1",
        claimed_at=NOW,
        finished_at=NOW,
        duration=0.1,
        outcome=outcome,
    )
