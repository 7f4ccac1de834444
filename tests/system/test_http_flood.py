"""`windlass serve` under many requests: one task for one key, and no more memory than at first. (P7, I1)"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest

from tests.examples import FULL
from tests.http.api_client import Api
from tests.http.test_ndjson import read
from tests.servers.process import free_port
from tests.system.fleet import wait_until

pytestmark = [pytest.mark.system, pytest.mark.more, pytest.mark.timeout(120)]

MEGABYTE = 1 << 20
REPEATS = 1_000 if FULL else 300
LINES = 100_000 if FULL else 40_000  # of half a kilobyte: several times what may be kept


class Served:
    """A server of its own, and what it weighs."""

    def __init__(self, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        log = folder / "server.log"
        command = [sys.executable, "-m", "windlass._cli.main", "serve", "--port", str(port)]
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [*command, "--store", f"sqlite:///{folder}/windlass.db"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        wait_until(lambda: b"serving" in log.read_bytes(), 20, what="the server serves", every=0.02)

    def weight(self) -> int:
        """Bytes of memory that it holds."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024

    def close(self) -> None:
        self._process.terminate()
        assert self._process.wait(20) == 0


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    server = Served(tmp_path)
    yield server
    server.close()


async def test_hundreds_of_repeats_at_once_are_one_task_round_after_round(served: Served) -> None:
    body = {"type": "t", "payload": {"text": "x" * 1_000}, "next": [{"type": "u"}]}
    limits = httpx2.Limits(max_connections=100)
    weights = []
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=60, limits=limits) as http:
        api = Api(http, served.url)

        async def asked(key: str) -> tuple[int, bytes]:
            response = await api("POST", "/tasks", body, idempotency_key=key)
            return response.status_code, response.content

        for number in range(4):
            answers = await asyncio.gather(*(asked(f"round {number}") for _ in range(REPEATS)))
            assert len(set(answers)) == 1
            assert answers[0][0] == 201
            weights.append(served.weight())
        assert len((await api.good("GET", "/tasks"))["items"]) == 4
    assert weights[-1] - weights[1] < 8 * MEGABYTE, weights


async def test_a_long_stream_takes_no_room(served: Served) -> None:
    part = b'{"type":"t","idempotency_key":"k","payload":{"text":"%b"}}\n' % (b"x" * 500) * 500

    async def many(number: int) -> AsyncIterator[bytes]:
        for _ in range(number // 500):
            yield part

    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=60) as http:
        api = Api(http, served.url)
        assert await read(api, many(10_000)) == 10_000
        before = served.weight()
        assert await read(api, many(LINES)) == LINES
        assert served.weight() - before < 10 * MEGABYTE
        assert len((await api.good("GET", "/tasks"))["items"]) == 1
