"""Task types that report the span they run in; at module level, where a child process finds them."""

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from windlass import App

app = App("memory://")


def here() -> dict[str, str | None]:
    """The span that is current, the parent of one that begins here, and what a task enqueued here carries."""
    found = trace.get_current_span().get_span_context()
    inner = TracerProvider(shutdown_on_exit=False).get_tracer("test").start_span("inner")
    assert isinstance(inner, ReadableSpan)
    return {
        "current": f"{found.trace_id:032x}-{found.span_id:016x}",
        "parent": f"{inner.parent.span_id:016x}" if inner.parent else None,
        "origin": app.builder.origin().trace[3:52],
    }


@app.task(process=True)
def in_child() -> dict[str, str | None]:
    return here()


@app.task(process=True)
async def in_childs_loop() -> dict[str, str | None]:
    return here()


@app.task
def in_thread() -> dict[str, str | None]:
    return here()


@app.task
async def in_loop() -> dict[str, str | None]:
    return here()
