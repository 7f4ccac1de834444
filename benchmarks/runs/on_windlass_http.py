"""Windlass over HTTP: the server, and a sender with several connections, each in its own process.

The sender is as cheap as possible, because it shares the processors with the server: a bare asyncio protocol
sends prepared bytes and only looks for the end of the response.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.runs import probe
from windlass import App
from windlass._http.server.run import Server, listen
from windlass._worker.process import calm_collector

HOST = "127.0.0.1"
WARM = 10  # 1/WARM as many requests are sent before timing starts, to fill caches and open connections.


def direct(url: str, number: int, callers: int) -> dict[str, Any]:
    """Enqueue the same tasks from Python, by this many concurrent callers."""

    async def enqueue() -> dict[str, Any]:
        app = App(url)
        await app.open()
        taken: list[float] = []

        async def call(numbers: Iterator[int]) -> None:
            for n in numbers:
                started = time.perf_counter()
                await app.client.send("note", {"n": n})
                taken.append(time.perf_counter() - started)

        async def calls(many: int) -> float:
            numbers = iter(range(many))
            started = time.perf_counter()
            await asyncio.gather(*(call(numbers) for _ in range(callers)))
            return many / (time.perf_counter() - started)

        await calls(number // WARM)
        taken.clear()
        rate = await calls(number)
        await _all_stand(app, number + number // WARM)
        await app.close()
        return probe.spread(taken) | {"rate": rate}

    return probe.looped(enqueue())


def serve(url: str, port: int) -> dict[str, Any]:
    """Run the server until stopped."""

    async def served() -> dict[str, Any]:
        calm_collector()  # as `windlass serve` does
        app = App(url)
        await app.open()
        with listen(HOST, port) as listener:
            server = Server(app, keeper=False, open_to_all=True)
            started = asyncio.Event()
            running = asyncio.create_task(server.run(listener, started.set))
            await started.wait()
            await probe.told("go")
            await probe.told("stop")
            server.stop()
            await running
        await app.close()
        return {"processor": time.process_time()}

    return probe.looped(served())


def serve_processes(url: str, port: int, processes: int) -> dict[str, Any]:
    """Run `windlass serve` with several processes until stopped."""
    options = {"processes": processes, "port": port, "store": url, "log-level": "warning"}
    command = [sys.executable, "-m", "windlass._cli.main", "serve", "--insecure", "--no-keeper"]

    async def served() -> dict[str, Any]:
        given = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        supervisor = await asyncio.create_subprocess_exec(*command, *given, stderr=asyncio.subprocess.PIPE)
        assert supervisor.stderr is not None
        await supervisor.stderr.readline()  # --insecure is warned of when all processes have started
        await probe.told("go")
        await probe.told("stop")
        supervisor.terminate()
        await supervisor.wait()
        return {}

    return probe.looped(served())


def post(url: str, port: int, number: int, connections: int) -> dict[str, Any]:
    """Send `number` requests POST /tasks, over this many concurrent connections."""

    async def sent() -> dict[str, Any]:
        loop = asyncio.get_running_loop()

        async def calls(many: int) -> tuple[Sending, float]:
            line = Sending(many)
            started = time.perf_counter()
            lines = [loop.create_connection(lambda: Connection(line), HOST, port) for _ in range(connections)]
            made = await asyncio.gather(*lines)
            await line.done
            rate = many / (time.perf_counter() - started)
            for transport, _ in made:
                transport.close()
            return line, rate

        await calls(number // WARM)
        line, rate = await calls(number)
        app = App(url)
        await app.open()
        await _all_stand(app, number + number // WARM)
        await app.close()
        return probe.spread(line.taken) | {"rate": rate}

    return probe.looped(sent())


class Sending:
    """The state that all connections share: requests left to send, and the time of each."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.number = number
        self.taken: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Connection(asyncio.Protocol):
    """A connection that sends one request after another."""

    def __init__(self, line: Sending) -> None:
        self._line = line
        self._answer = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if not data.endswith(b"}"):
            return
        if not self._answer.startswith(b"HTTP/1.1 201 "):
            self._line.done.set_exception(AssertionError(self._answer.decode()))
            return
        line, self._answer = self._line, b""
        line.taken.append(time.perf_counter() - self._started)
        if len(line.taken) == line.number:
            line.done.set_result(None)
        self._send()

    def _send(self) -> None:
        line = self._line
        if not line.left:
            return
        line.left -= 1
        body = b'{"type":"note","payload":{"n":%d}}' % line.left
        self._started = time.perf_counter()
        self._transport.write(
            b"POST /tasks HTTP/1.1\r\nhost: windlass\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(body), body)
        )


async def _all_stand(app: App, number: int) -> None:
    counts = await app.operator.count()
    found = sum(one.number for one in counts)
    assert found == number or not all(one.exact for one in counts), f"{found} tasks stand, not {number}"


if __name__ == "__main__":
    probe.main({verb.__name__: verb for verb in (direct, serve, serve_processes, post)})
