"""Ask for health and send heartbeats every 50 ms, in a process of its own; then say how long they took.

    python pulse.py PORT KEY SESSION

It prints a line for each answer. Once it has read a line, it prints the figures as JSON and ends.
"""

import asyncio
import json
import sys
from time import monotonic

EVERY_SECONDS = 0.05
GIVEN_SECONDS = 10.0


async def main(port: int, key: str, session: str) -> None:
    beat = json.dumps({"session": session, "worker": {"name": "pulse", "lease": 60}}).encode()
    head = (
        f"POST /work/heartbeat HTTP/1.1\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n"
    )
    requests = {
        "healthz": b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        "heartbeat": f"{head}host: x\r\nconnection: close\r\ncontent-length: {len(beat)}\r\n\r\n".encode()
        + beat,
    }
    stop = asyncio.ensure_future(asyncio.to_thread(sys.stdin.readline))
    answers = dict(await asyncio.gather(*(ask(port, *one, stop) for one in requests.items())))
    sys.stdout.write(json.dumps(answers))


async def ask(port: int, name: str, request: bytes, stop: asyncio.Future[str]) -> tuple[str, object]:
    times: list[float] = []
    failed: list[str] = []
    while not stop.done():
        began = monotonic()
        try:
            async with asyncio.timeout(GIVEN_SECONDS):
                answer = await answer_to(port, request)
        except (OSError, TimeoutError) as error:
            answer = repr(error)
        times.append(monotonic() - began)
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()
        if " 200 " not in answer:
            failed.append(answer[:200])
        await asyncio.wait([stop], timeout=max(began + EVERY_SECONDS - monotonic(), 0))
    return name, {"asked": len(times), "worst": max(times), "failed": failed}


async def answer_to(port: int, request: bytes) -> str:
    """The status line; on a new connection, as a probe asks."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return (await reader.read()).partition(b"\r\n")[0].decode()
    finally:
        writer.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
