"""A trace given with the request reaches the handler that runs the task."""

from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.http.api_client import Api, lease
from tests.loops.workers import drained
from windlass import App
from windlass._stores.memory import MemoryStore

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
THEIRS = f"00-{TRACE}-{SPAN}-01"
OTHERS = f"00-{'1' * 32}-{'2' * 16}-00"


async def trace_of(api: Api, body: dict[str, Any], **headers: str) -> str:
    made = await api.good("POST", "/tasks", body, **headers)
    found: str = (await api.good("GET", f"/tasks/{made['id']}"))["trace"]
    return found


async def test_the_header_is_the_tasks_trace(api_of: Api) -> None:
    assert await trace_of(api_of, {"type": "t"}, traceparent=THEIRS) == THEIRS


async def test_what_the_body_says_goes_before_it(api_of: Api) -> None:
    assert await trace_of(api_of, {"type": "t", "trace": OTHERS}, traceparent=THEIRS) == OTHERS


@pytest.mark.parametrize(
    "header", ["", "x", f"00-{'0' * 32}-{SPAN}-01", f"ff-{TRACE}-{SPAN}-01", THEIRS.upper()]
)
async def test_a_wrong_one_is_ignored(header: str, api_of: Api) -> None:
    found = await trace_of(api_of, {"type": "t"}, traceparent=header)
    assert TRACE not in found
    assert len(found) == len(THEIRS)


async def test_it_goes_along_a_chain_to_a_worker_in_any_language(api_of: Api) -> None:
    await api_of.good("POST", "/tasks", {"type": "t", "next": [{"type": "u"}]}, traceparent=THEIRS)
    session = await api_of.session()
    for number, wanted in enumerate(["t", "u"], start=1):
        (claimed,) = await api_of.claim(session, number)
        assert (claimed["type"], claimed["trace"]) == (wanted, THEIRS)
        assert await api_of.settle(lease(claimed) | {"outcome": "returned"}) == ["applied"]


async def test_every_task_of_a_batch_has_it(api_of: Api) -> None:
    made = await api_of.good(
        "POST", "/tasks/batch", {"tasks": [{"type": "t"}, {"type": "t"}]}, traceparent=THEIRS
    )
    for one in made["tasks"]:
        assert (await api_of.good("GET", f"/tasks/{one['id']}"))["trace"] == THEIRS


async def test_the_handlers_span_is_a_child_of_theirs(
    api_of: Api, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    app = App(store)

    @app.task(name="t")
    async def handler() -> None:
        pass

    await api_of.good("POST", "/tasks", {"type": "t"}, traceparent=THEIRS)
    await drained(app)

    (process,) = [span for span in exporter.get_finished_spans() if span.name == "process t"]
    assert process.parent is not None
    assert f"{process.parent.trace_id:032x}" == TRACE
    assert f"{process.parent.span_id:016x}" == SPAN
    provider.shutdown()
