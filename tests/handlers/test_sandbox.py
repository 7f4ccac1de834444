"""The sandbox: what a function uses or breaks ends with its child process."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from windlass.handlers.pages.extract import FUNCTION
from windlass.handlers.sandbox import Bounds, SandboxError, SandboxTimeout, run_in_sandbox

FUNCTIONS = Path(__file__).with_name("sandboxed.py")
USUAL = Bounds(memory=300 << 20, cpu=2, seconds=20, output=1_000_000)


async def run(name: str, options: Any = None, bounds: Bounds = USUAL) -> tuple[Any, list[bytes]]:
    return await run_in_sandbox(f"{FUNCTIONS}:{name}", options, [b"in\0put"], bounds)


async def test_a_function_gets_and_returns_json_and_bytes() -> None:
    assert await run("echo", {"n": [1, "\u2693"]}) == ({"n": [1, "\u2693"]}, [b"in\0put", b"more"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("refuse", "ValueError: not today"),
        ("eat", "more than 300 MiB of memory"),
        ("crash", "SIGSEGV"),
        ("flood", "larger than 1,000,000 bytes"),
        ("flood_at_once", "larger than 1,000,000 bytes"),
        ("leave", "status 3"),
        ("lie", "sent no result"),
    ],
)
async def test_what_goes_wrong_is_an_error(name: str, message: str) -> None:
    with pytest.raises(SandboxError, match=message):
        await run(name)


async def test_time_on_the_cpu_is_bounded() -> None:
    with pytest.raises(SandboxError, match="more than 1 second of CPU time"):
        await run("spin", bounds=Bounds(cpu=1))


async def test_a_page_that_would_take_minutes_is_cut() -> None:
    """The parser takes more than eight minutes for this megabyte."""
    page = b"<div>" * 200_000
    with pytest.raises(SandboxError, match="of CPU time"):
        await run_in_sandbox(FUNCTION, {"url": "http://a"}, [page], Bounds(cpu=1))


async def test_a_child_that_hangs_is_killed() -> None:
    with pytest.raises(SandboxTimeout, match=r"longer than 0\.8 s"):
        await run("hang", bounds=Bounds(seconds=0.8))


async def test_who_gives_up_ends_the_child() -> None:
    running = asyncio.create_task(run("hang"))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_no_more_children_run_at_once_than_there_are_processors() -> None:
    number = (os.cpu_count() or 1) + 1
    running = [asyncio.create_task(run("hang", bounds=Bounds(seconds=0.5))) for _ in range(number)]
    done, waiting = await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)

    assert len(waiting) >= 1  # who had to wait started later
    others, _ = await asyncio.wait(running)
    assert {type(one.exception()) for one in done | others} == {SandboxTimeout}


async def test_no_file_is_written(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"SIGXFSZ|File too large"):
        await run("write", str(tmp_path / "file"))


async def test_the_environment_is_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_KEY", "secret")

    assert "WINDLASS_KEY" not in (await run("environment"))[0]
