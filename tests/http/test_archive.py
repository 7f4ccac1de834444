"""The state of archiving over HTTP."""

from datetime import UTC, datetime

from tests.http.api_client import Api
from tests.http.problem import problem
from windlass._model.record import Archive
from windlass._stores.memory import MemoryStore


async def test_archiving_is_shown_and_turned_off(api_of: Api, store: MemoryStore) -> None:
    problem(await api_of("GET", "/archive"), 404, "not-found")
    await store.put(Archive(until=datetime(2026, 11, 16, tzinfo=UTC), directory="/archive"))

    assert await api_of.good("GET", "/archive") == {
        "until": "2026-11-16T00:00:00Z",
        "directory": "/archive",
    }
    await api_of.good("DELETE", "/archive?why=moved")
    problem(await api_of("DELETE", "/archive"), 404, "not-found")
    (line,) = (await api_of.good("GET", "/audit"))["items"]
    assert (line["summary"], line["why"]) == ("removed archive history", "moved")
