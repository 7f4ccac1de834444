"""Ctrl-C in a command: when it cancels, and what a second one does."""

import asyncio
import signal

import pytest

from windlass._cli.command import Cli
from windlass._cli.exit_codes import ExitCode, guarded


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
