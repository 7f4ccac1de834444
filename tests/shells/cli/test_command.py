"""Ctrl-C in a command: when it cancels, and what a second one does."""

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from windlass._cli.command import Cli
from windlass._cli.exit_codes import ExitCode, guarded
from windlass._cli.operator_actions import confirmed


@pytest.fixture
def cli() -> Cli:
    cli = Cli()
    cli.flags = {"store": "memory://"}
    return cli


def test_an_interrupt_cancels_between_callbacks_and_not_within_one(cli: Cli) -> None:
    requests: list[int] = []

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        signal.raise_signal(signal.SIGINT)
        requests.append(task.cancelling())
        await asyncio.wait_for(asyncio.Event().wait(), 10)

    assert guarded(lambda: cli.run(work, create=True, private=True), []) == ExitCode.INTERRUPTED
    assert requests == [0]


def test_a_second_interrupt_ends_a_command_that_does_not_stop(cli: Cli) -> None:
    async def work() -> None:
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 10)
        except asyncio.CancelledError:
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("the second interrupt did nothing") from None

    with pytest.raises(KeyboardInterrupt):
        cli.run(work, create=True, private=True)


def test_a_second_interrupt_ends_a_command_whose_event_loop_is_blocked(cli: Cli) -> None:
    async def work() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the second interrupt waited for the event loop")

    with pytest.raises(KeyboardInterrupt):
        cli.run(work, create=True, private=True)


def test_the_handler_of_interrupts_is_restored(cli: Cli) -> None:
    async def work() -> None: ...

    before = signal.getsignal(signal.SIGINT)
    cli.run(work, create=True, private=True)

    assert signal.getsignal(signal.SIGINT) is before


def test_a_command_runs_in_a_thread(cli: Cli) -> None:
    async def work() -> str:
        return "done"

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(cli.run, work, create=True, private=True).result(10) == "done"


def test_one_interrupt_answers_a_question_with_no(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_prompt: str) -> str:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the interrupt waited for the event loop")

    async def work() -> bool:
        return confirmed("cancel 1 task?")

    monkeypatch.setattr("click.termui.visible_prompt_func", interrupt)
    assert not cli.run(work, create=True, private=True)
