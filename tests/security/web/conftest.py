"""A server for attacks on what it serves, and a client."""

from collections.abc import AsyncIterator, Iterator

import httpx2
import pytest

from tests.dashboard.conftest import chromium, open_tab, run, server
from tests.servers.api import ApiServer

__all__ = ["chromium", "open_tab", "run", "server"]


@pytest.fixture(scope="session")
def api() -> Iterator[ApiServer]:
    with ApiServer() as api:
        yield api


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=30) as http:
        yield http
