"""Ask for health and send heartbeats every 50 ms, in a process of its own; then say how long they took.

    python pulse.py PORT KEY SESSION [QUEUE]

With a queue it also enqueues a task there, claims it and settles it, every 50 ms. It prints a line for each
answer. Once it has read a line, it prints the figures as JSON and ends.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from time import monotonic

EVERY_SECONDS = 0.05
GIVEN_SECONDS = 10.0
HEALTH = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


class Pulse:
    """Sends requests until stopped, each on a new connection, and keeps how long each kind took."""

    def __init__(self, port: int, key: str, session: str, queue: str) -> None:
        self._port, self._key, self._session, self._queue = port, key, session, queue
        self._stop = asyncio.ensure_future(asyncio.to_thread(sys.stdin.readline))
        self._times: dict[str, list[float]] = {}
        self._failed: dict[str, list[str]] = {}

    async def run(self) -> dict[str, object]:
        await asyncio.gather(*map(self._repeat, (self._health, self._beat, self._work)))
        return {
            name: {"asked": len(times), "worst": max(times), "failed": self._failed[name]}
            for name, times in self._times.items()
        }

    async def _repeat(self, do: Callable[[], Awaitable[None]]) -> None:
        while not self._stop.done():
            began = monotonic()
            await do()
            await asyncio.wait([self._stop], timeout=max(began + EVERY_SECONDS - monotonic(), 0))

    async def _health(self) -> None:
        await self._ask("healthz", HEALTH)

    async def _beat(self) -> None:
        worker = {"name": "pulse", "lease": 60, "queues": [self._queue or "default"]}
        await self._ask("heartbeat", self._post("/work/heartbeat", session=self._session, worker=worker))

    async def _work(self) -> None:
        if not self._queue:
            await self._stop
            return
        await self._ask("enqueue", self._post("/tasks", type="pulse", queue=self._queue))
        claim = self._post("/work/claim", session=self._session, queues=[self._queue], number=1)
        body = await self._ask("claim", claim)
        for task in json.loads(body)["tasks"] if body else ():
            settled = {"id": task["id"], "fence": task["fence"], "outcome": "returned"}
            await self._ask("settle", self._post("/work/settle", tasks=[settled]))

    def _post(self, path: str, **body: object) -> bytes:
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {self._key}\r\nconnection: close\r\n"
            f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        return head.encode() + content

    async def _ask(self, name: str, request: bytes) -> bytes:
        """Return the body of the answer; nothing if it failed."""
        began = monotonic()
        try:
            async with asyncio.timeout(GIVEN_SECONDS):
                answer = await answer_to(self._port, request)
        except (OSError, TimeoutError) as error:
            answer = repr(error).encode()
        self._times.setdefault(name, []).append(monotonic() - began)
        failed = self._failed.setdefault(name, [])
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()
        if answer.split(b" ", 2)[1:2] not in ([b"200"], [b"201"]):
            failed.append(answer[:200].decode())
            return b""
        return answer.partition(b"\r\n\r\n")[2]


async def answer_to(port: int, request: bytes) -> bytes:
    """The whole answer; on a new connection, as a probe asks."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()


async def main(port: str, key: str, session: str, queue: str = "") -> None:
    sys.stdout.write(json.dumps(await Pulse(int(port), key, session, queue).run()))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
