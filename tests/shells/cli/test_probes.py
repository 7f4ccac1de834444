"""The health of commands that run until stopped: HTTP probes, a file, and notifications for systemd."""

import asyncio
import os
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest

from tests.loops.workers import block, eventually
from tests.servers.process import free_port
from windlass._cli.run.health import Health, serve_pages
from windlass.errors import Refused

from .conftest import Run
from .processes import until

Start = Callable[..., subprocess.Popen[str]]


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=20) as response:
            return response.status, response.read().decode().strip()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode().strip()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """A notification socket as systemd's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(30)
        yield listener


async def test_it_is_ready_from_start_to_stop_while_it_works(tmp_path: Path) -> None:
    works, end, file = [True], asyncio.Event(), tmp_path / "healthy"
    health = Health(lambda: works[0], patience=60)
    url = serve_pages("probes", ("127.0.0.1", 0), health.pages)

    async def ready() -> tuple[int, str]:
        return await asyncio.to_thread(fetch, f"{url}/ready")

    running = asyncio.ensure_future(health.report_while(_until(end), str(file)))
    assert await ready() == (503, "not ready")
    assert not file.exists()
    health.started()
    assert await ready() == (200, "ready")
    await eventually(file.exists)
    os.utime(file, (0, 0))
    await eventually(lambda: file.stat().st_mtime > 0)  # it is kept fresh
    works[0] = False
    assert await ready() == (503, "not ready")
    await eventually(lambda: not file.exists())
    works[0] = True
    health.stopping()
    assert await ready() == (503, "not ready")
    assert await asyncio.to_thread(fetch, f"{url}/live?verbose") == (200, "alive")
    assert await asyncio.to_thread(fetch, f"{url}/") == (404, "there are /live, /ready")
    end.set()
    await running
    assert not file.exists()


async def _until(end: asyncio.Event) -> None:
    await end.wait()


async def test_it_is_not_alive_while_its_event_loop_is_blocked() -> None:
    health, end = Health(lambda: True, patience=0.2), asyncio.Event()
    url = serve_pages("probes", ("127.0.0.1", 0), health.pages)
    found: list[tuple[int, str]] = []

    def probe() -> None:
        deadline = monotonic() + 30
        while monotonic() < deadline and (not found or found[-1][0] == 200):
            found.append(fetch(f"{url}/live"))

    probing = asyncio.ensure_future(asyncio.to_thread(probe))
    while not probing.done():
        block(0.3)  # as a handler might
        await asyncio.sleep(0)
    end.set()
    assert found[-1][0] == 503
    assert "the event loop has been blocked for" in found[-1][1]


def test_an_address_that_is_taken_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Refused, match="cannot serve probes"):
        serve_pages("probes", taken.getsockname(), {})


async def test_the_service_manager_is_notified(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", manager.getsockname())
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    health, end = Health(lambda: True, patience=60), asyncio.Event()
    running = asyncio.ensure_future(health.report_while(_until(end), None))

    async def received() -> bytes:
        return await asyncio.to_thread(manager.recv, 4096)

    assert await received() == b"WATCHDOG=1"
    health.started()
    while (state := await received()) == b"WATCHDOG=1":
        pass
    assert state == b"READY=1"
    health.stopping()
    while (state := await received()) == b"WATCHDOG=1":
        pass
    assert state == b"STOPPING=1"
    end.set()
    await running


async def test_the_watchdog_of_another_process_and_a_dead_manager_are_ignored(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    for address in (manager.getsockname(), str(tmp_path / "nobody")):
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        health, end = Health(lambda: True, patience=60), asyncio.Event()
        health.started()
        running = asyncio.ensure_future(health.report_while(_until(end), None))
        if address == manager.getsockname():
            assert await asyncio.to_thread(manager.recv, 4096) == b"READY=1"
        end.set()
        await running


@pytest.mark.parametrize("option", ["--health", "--metrics"])
def test_an_invalid_address_is_refused(run: Run, option: str) -> None:
    ran = run("worker", "shop:app", f"{option}=x")
    assert ran.code == 2
    assert f"{option[2:]} must be PORT or HOST:PORT" in ran.err


@pytest.mark.system
@pytest.mark.parametrize(
    "command",
    [
        ("worker", "shop:app"),
        pytest.param(("worker", "shop:app", "--workers", "2"), marks=pytest.mark.full),
        ("keeper",),
    ],
)
def test_a_worker_and_a_keeper_answer_probes_and_notify(
    start: Start, manager: socket.socket, folder: Path, command: tuple[str, ...]
) -> None:
    process = start(*command, "--health=0", "--health-file=healthy", env=notified(manager))
    url = until(process, "probes are at")[-1].split()[-3].removesuffix("/live")
    states = received(manager, b"READY=1")
    assert fetch(f"{url}/live") == (200, "alive")
    assert fetch(f"{url}/ready") == (200, "ready")
    assert fetch(f"{url}/metrics")[0] == 404
    if command[0] == "worker":
        until(process, "2 workers started" if "--workers" in command else "is ready")
    while not (folder / "healthy").exists():  # pytest's own time limit ends it
        pass
    states |= stopped(process, manager)
    assert states == {b"READY=1", b"WATCHDOG=1", b"STOPPING=1"}
    assert not (folder / "healthy").exists()


@pytest.mark.system
@pytest.mark.parametrize(
    "command",
    [
        ("serve",),
        pytest.param(("serve", "--processes", "2"), marks=pytest.mark.full),
        ("up", "shop:app"),
        pytest.param(("up",), marks=pytest.mark.full),
    ],
)
def test_a_server_notifies(start: Start, manager: socket.socket, command: tuple[str, ...]) -> None:
    server = start(*command, f"--port={free_port()}", env=notified(manager))
    states = received(manager, b"READY=1")
    until(server, "serving")  # it was announced before
    states |= stopped(server, manager)
    assert states == {b"READY=1", b"WATCHDOG=1", b"STOPPING=1"}


def notified(manager: socket.socket) -> dict[str, str]:
    return {**os.environ, "NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "30000000"}


def received(manager: socket.socket, last: bytes) -> set[bytes]:
    """Receive states until this one has come."""
    states: set[bytes] = set()
    while last not in states:
        states.add(manager.recv(4096))
    return states


def stopped(process: "subprocess.Popen[str]", manager: socket.socket) -> set[bytes]:
    """Stop a process; return the states that it has sent meanwhile."""
    process.terminate()
    states = received(manager, b"STOPPING=1")
    _, err = process.communicate(timeout=50)
    assert process.returncode == 0, err
    return states
