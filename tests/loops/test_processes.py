"""Handlers in child processes: they can be killed, and cannot harm the worker or other tasks."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.loops import child_tasks
from tests.loops.child_tasks import app as child_app
from tests.loops.workers import assert_nothing_held, drained, eventually, settings, tasks, working
from windlass import App, Filter, InvalidOption, State
from windlass._model.filter import By
from windlass._model.task import Task
from windlass._stores.memory import MemoryStore


@pytest.fixture
def app() -> Iterator[App]:
    """The module's app on a store of its own."""
    before = child_app.use_store(MemoryStore())
    yield child_app
    child_app.use_store(before)


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


async def read(file: Path) -> list[int]:
    return [int(word) for word in await eventually(lambda: file.exists() and file.read_text().split())]


async def test_results_and_typed_arguments_pass_through_a_child(app: App) -> None:
    handles = [
        await child_tasks.double.aenqueue(4, at=datetime(2026, 1, 1, tzinfo=UTC)),
        await child_tasks.triple.aenqueue(5),
    ]
    await drained(app)

    assert [await handle.result(timeout=1) for handle in handles] == [{"double": 8, "year": 2026}, 15]


async def test_a_child_is_kept_for_the_next_task_also_after_a_failure(app: App) -> None:
    first = await child_tasks.pid.aenqueue()
    await child_tasks.fail.aenqueue(password="x")
    second = await child_tasks.pid.aenqueue()
    await drained(app, slots=1, processes=1)

    pids = [await first.result(timeout=1), await second.result(timeout=1)]
    assert pids[0] == pids[1] != os.getpid()
    await eventually(lambda: is_gone(pids[0]))


async def test_an_error_in_a_child_is_told_without_its_secrets(app: App) -> None:
    handle = await child_tasks.fail.aenqueue(password="sesame-open")
    await drained(app)

    error = (await handle.task()).error
    assert error is not None
    assert (error.type, error.message) == ("ValueError", "cannot log in with [secret]")
    assert "in fail" in (error.traceback or "")
    assert "sesame" not in (error.traceback or "")


@pytest.mark.parametrize(
    ("how", "state", "attempt", "message"),
    [
        ("retry", State.SCHEDULED, 1, "busy"),
        ("snooze", State.SCHEDULED, 0, None),
        ("fatal", State.DEAD, 1, "hopeless"),
        ("declared", State.DEAD, 1, "not this card"),
        ("exit", State.DEAD, 3, "4"),
        ("odd result", State.DEAD, 1, "the handler ran, but the result at its root is an object"),
    ],
)
async def test_signals_pass_through_a_child(
    app: App, how: str, state: State, attempt: int, message: str | None
) -> None:
    handle = await child_tasks.steer.aenqueue(how=how)
    await drained(app)

    task = await handle.task()
    assert (task.state, task.attempt) == (state, attempt)
    assert message is None or (task.error and message in task.error.message)
    if state is State.SCHEDULED:
        assert 50 < (task.run_at - task.created_at).total_seconds() < 70


async def test_a_payload_that_no_longer_fits_is_fatal_in_a_child_too(app: App) -> None:
    handle = await App(app.store).client.send(child_tasks.double.name, {"n": "four"})
    await drained(app)

    task = await handle.task()
    assert (task.state, task.attempt) == (State.DEAD, 1)
    assert "does not fit" in (task.error.message if task.error else "")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("exit", "the child process exited with status 7"),
        ("kill", "the child process was killed by SIGKILL"),
        ("segfault", "the child process was killed by SIGSEGV"),
        ("deaf", "the child process closed its pipes and was killed"),
    ],
)
async def test_the_death_of_a_child_costs_one_attempt_and_no_neighbour(
    app: App, how: str, message: str
) -> None:
    dying = await child_tasks.die.aenqueue(how=how)
    neighbours = [await child_tasks.double.aenqueue(n) for n in range(6)]
    worker = await drained(app, slots=3, processes=2)

    task = await dying.task()
    assert (task.state, task.attempt, task.error) == (State.DEAD, 1, task.error)
    assert task.error is not None
    assert (task.error.type, task.error.message) == ("ProcessDied", message)
    assert [(await handle.result(timeout=1))["double"] for handle in neighbours] == [0, 2, 4, 6, 8, 10]
    assert worker.ran == 7
    await assert_nothing_held(app)


async def test_a_child_that_died_while_idle_costs_nobody_an_attempt(app: App) -> None:
    async with working(app, processes=1):
        pid = await (await child_tasks.pid.aenqueue()).result(timeout=5)
        os.kill(pid, 9)
        await eventually(lambda: not Path(f"/proc/{pid}").exists())
        handle = await child_tasks.pid.aenqueue()
        other = await handle.result(timeout=5)

        assert other != pid
        assert (await handle.task()).attempt == 1


async def test_a_child_out_of_time_is_killed_with_all_that_it_started(app: App, tmp_path: Path) -> None:
    handle = await child_tasks.spawn_and_wait.using(timeout=3, max_attempts=1).aenqueue(
        str(tmp_path / "pids")
    )
    await drained(app)

    pids = await read(tmp_path / "pids")
    assert len(pids) == 2
    for pid in pids:
        await eventually(lambda pid=pid: is_gone(pid))  # type: ignore[misc]
    task = await handle.task()
    assert (task.state, task.error.type if task.error else "") == (State.DEAD, "TimedOut")


async def test_a_child_out_of_time_ends_although_a_process_that_left_its_session_holds_its_pipes(
    app: App, tmp_path: Path
) -> None:
    async with working(app):
        handle = await child_tasks.escape.using(timeout=2, max_attempts=1).aenqueue(str(tmp_path / "pid"))
        (pid,) = await read(tmp_path / "pid")
        try:
            task = await handle.wait(timeout=6)
            assert not is_gone(pid)
            assert (task.state, task.error.type if task.error else "") == (State.DEAD, "TimedOut")
        finally:
            os.kill(pid, signal.SIGKILL)


async def test_a_cancelled_task_is_killed_in_its_child(app: App, tmp_path: Path) -> None:
    async with working(app):
        handle = await child_tasks.wait.aenqueue(str(tmp_path / "pid"))
        (pid,) = await read(tmp_path / "pid")
        await handle.cancel()

        assert (await handle.wait(timeout=5)).state is State.CANCELLED
        await eventually(lambda: is_gone(pid))


async def test_the_time_spent_waiting_for_a_child_is_not_counted(app: App) -> None:
    """One child for many tasks whose timeouts are shorter than the whole takes."""
    async with working(app, slots=8, processes=1):
        await (await child_tasks.pid.aenqueue()).result(timeout=5)  # a child stands ready
        handles = [await child_tasks.nap.using(timeout=2.5).aenqueue(0.5) for _ in range(6)]
        ended = [await handle.wait(timeout=20) for handle in handles]

    assert [task.state for task in ended] == [State.COMPLETED] * 6
    assert all(0.5 <= (task.duration or 0) < 2.5 for task in ended)


async def test_a_task_that_waits_for_a_child_can_be_cancelled_at_once(app: App, tmp_path: Path) -> None:
    async with working(app, slots=2, processes=1):
        holding = await child_tasks.wait.aenqueue(str(tmp_path / "pid"))
        await read(tmp_path / "pid")
        waiting = await child_tasks.pid.aenqueue()
        await eventually(lambda: _is(waiting, State.RUNNING))
        await waiting.cancel()

        assert (await waiting.wait(timeout=5)).state is State.CANCELLED
        assert await holding.state() is State.RUNNING
        await app.operator.cancel(Filter(), by=By(who="test"))
        await holding.wait(timeout=5)


async def test_what_a_handler_prints_does_not_get_into_the_protocol(app: App, capfd: Any) -> None:
    handles = [await child_tasks.talk.aenqueue(n) for n in range(3)]
    await drained(app, processes=1)

    assert [await handle.result(timeout=1) for handle in handles] == [0, 1, 2]
    assert "a linea line" in capfd.readouterr().err


async def test_progress_from_a_child_reaches_the_store(app: App, tmp_path: Path) -> None:
    async with working(app):
        handle = await child_tasks.report.aenqueue(str(tmp_path / "go on"))  # type: ignore[call-arg]
        progress = await eventually(handle.progress)
        (tmp_path / "go on").touch()

        assert (progress.fraction, progress.message) == (0.25, "a quarter")
        assert await handle.result(timeout=5) == f"1 {handle.id}"
        assert (await handle.progress()).message == "done"  # type: ignore[union-attr]


async def test_after_grace_children_are_killed_and_their_tasks_handed_back(app: App, tmp_path: Path) -> None:
    handle = await child_tasks.wait.aenqueue(str(tmp_path / "pid"))
    async with working(app, grace=0.05):
        (pid,) = await read(tmp_path / "pid")

    task = await handle.task()
    assert (task.state, task.attempt) == (State.READY, 0)
    assert is_gone(pid)
    await assert_nothing_held(app)


async def test_a_worker_that_is_cancelled_takes_its_children_with_it(app: App, tmp_path: Path) -> None:
    await child_tasks.wait.aenqueue(str(tmp_path / "pid"))
    run = asyncio.create_task(app.worker(settings()).run())
    (pid,) = await read(tmp_path / "pid")
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    await eventually(lambda: is_gone(pid))


def test_a_handler_that_no_child_could_find_is_refused_at_its_declaration() -> None:
    with pytest.raises(InvalidOption, match="top level of a module"):

        @App("memory://").task(process=True)
        def hidden() -> None: ...


SCRIPT = """
    import asyncio, os, sys, threading
    from windlass import App, WorkerSettings

    app = App("memory://")

    @app.task(process=True, max_attempts=1)
    def pid(stay: bool) -> list:
        if stay:
            print(os.getpid(), file=sys.stderr, flush=True)
            threading.Event().wait(60)
        return [os.getpid(), __name__]

    async def main(stay):
        handle = await pid.aenqueue(stay)
        await app.worker(WorkerSettings(drain=True, keeper=False)).run()
        print(os.getpid(), *await handle.result(timeout=1))

    if __name__ == "__main__":
        asyncio.run(main(len(sys.argv) > 1))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(SCRIPT))
    return file


@pytest.fixture
def unguarded(script: Path) -> Path:
    script.write_text(script.read_text().replace('if __name__ == "__main__":', "if True:"))
    return script


async def test_a_child_finds_the_tasks_of_a_script(script: Path) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, script, stdout=subprocess.PIPE)
    output, _ = await asyncio.wait_for(process.communicate(), 20)

    parent, child, name = output.decode().split()
    assert process.returncode == 0
    assert parent != child
    assert name == "__windlass_child__"


async def test_a_child_finds_the_tasks_of_a_module_that_is_run(script: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "program", stdout=subprocess.PIPE, cwd=script.parent
    )
    output, _ = await asyncio.wait_for(process.communicate(), 20)

    assert process.returncode == 0
    assert output.decode().split()[2] == "program"


async def test_children_die_with_their_worker(script: Path) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, script, "stay", stderr=subprocess.PIPE)
    assert process.stderr is not None
    child = int(await asyncio.wait_for(process.stderr.readline(), 20))
    assert not is_gone(child)
    process.kill()
    await process.wait()

    await eventually(lambda: is_gone(child))


async def _is(handle: Any, state: State) -> bool:
    task: Task = await handle.task()
    return task.state is state


async def test_many_tasks_share_few_children(app: App) -> None:
    handles = [await child_tasks.pid.aenqueue() for _ in range(60)]
    await drained(app, slots=16, processes=2)

    assert len({await handle.result(timeout=1) for handle in handles}) <= 2
    assert len(await tasks(app, State.COMPLETED)) == 60


async def test_a_script_that_starts_its_worker_when_imported_is_told_so_and_starts_no_avalanche(
    unguarded: Path,
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, unguarded, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    _, errors = await asyncio.wait_for(process.communicate(), 20)

    assert process.returncode == 1
    assert b"the child process exited with status 1" in errors
    assert b"a child process started a worker while importing" in errors
