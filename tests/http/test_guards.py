"""The guards of a connection hook into uvicorn: each hook exists in the installed version and is called."""

import asyncio
import inspect
import tomllib
from asyncio import Protocol, StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

import pytest
import uvicorn
import uvloop
from packaging.requirements import Requirement
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tests.loops.workers import eventually
from tests.test_tidy import ROOT
from windlass._http.server.connections import Connections
from windlass._http.server.protocol import GuardedProtocol

HOOKS = sorted(name for name in vars(GuardedProtocol) if not name.startswith("_") and name != "evict")
LARGE = b"x" * (20 << 20)  # more than the buffers of a connection hold


@pytest.mark.parametrize("name", HOOKS)
def test_every_hook_is_one_of_uvicorn(name: str) -> None:
    theirs = getattr(HttpToolsProtocol, name)
    assert hasattr(Protocol, name) or theirs.__module__.startswith("uvicorn.")
    ours = inspect.signature(getattr(GuardedProtocol, name))
    assert [*ours.parameters] == [*inspect.signature(theirs).parameters]


@pytest.mark.parametrize("package", ["uvicorn", "httptools"])
def test_the_versions_are_bounded(package: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (needed,) = [one for one in map(Requirement, extras["http"]) if one.name == package]
    assert {one.operator for one in needed.specifier} == {">=", "<"}
    assert version(package) in needed.specifier


def traced(called: set[str]) -> type[GuardedProtocol]:
    """The protocol, noting which of its hooks are called."""

    def noting(name: str) -> Callable[..., Any]:
        def hook(self: GuardedProtocol, *given: Any) -> Any:
            called.add(name)
            return getattr(GuardedProtocol, name)(self, *given)

        return hook

    return type("Traced", (GuardedProtocol,), {name: noting(name) for name in HOOKS})


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] == "/wait":
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    body = LARGE if scope["path"] == "/large" else b"small"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


@asynccontextmanager
async def served(protocol: type[GuardedProtocol]) -> AsyncIterator[int]:
    config = uvicorn.Config(
        app,
        interface="asgi3",
        http=partial(protocol, among=Connections()),
        ws="none",
        lifespan="off",
        port=0,
        log_config=None,
    )
    server = uvicorn.Server(config)
    running = asyncio.ensure_future(server.serve())
    await eventually(lambda: server.started)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await running


async def asked(port: int, request: bytes) -> tuple[StreamReader, StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    return reader, writer


async def test_every_hook_is_called() -> None:
    called: set[str] = set()
    async with asyncio.timeout(20), served(traced(called)) as port:
        reader, writer = await asked(port, b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
        reader, writer = await asked(port, b"nonsense\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")
        writer.close()
        reader, writer = await asked(port, b"GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        await eventually(lambda: "pause_writing" in called)
        assert len(await reader.read()) > len(LARGE)
        writer.close()
    assert called == set(HOOKS)


@pytest.mark.parametrize("path", [b"/large", b"/wait"])
@pytest.mark.parametrize("loop", [asyncio, uvloop], ids=["asyncio", "uvloop"])
def test_a_pipeline_ends_with_its_client(path: bytes, loop: Any, caplog: pytest.LogCaptureFixture) -> None:
    """uvicorn tells only the last of pipelined requests that its client is gone."""
    opened: list[GuardedProtocol] = []

    class Noted(GuardedProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            opened.append(self)

    async def leave() -> None:
        async with asyncio.timeout(20), served(Noted) as port:
            request = b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n"
            reader, writer = await asked(port, request % b"/" + request % path * 3)
            await reader.readuntil(b"small")
            await eventually(lambda: bool(opened[0].pipeline))
            writer.transport.abort()
            await eventually(lambda: not opened[0].tasks)

    with asyncio.Runner(loop_factory=loop.new_event_loop) as runner:
        runner.run(leave())

    assert not [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
