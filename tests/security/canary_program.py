"""A program whose handlers are careless with secrets: they log, report, note, return and raise them."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentry_sdk
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from windlass import App, Backoff, Context, Fatal
from windlass.integrations.sentry import attach

app = App("sqlite:///canary.db", redact=[r"bird-[\w-]+"], backoff=Backoff(base=0, jitter=0))
log = logging.getLogger("shop")
SPANS = os.environ.get("CANARY_SPANS")
SENTRY = os.environ.get("CANARY_SENTRY")


class FileExporter(SpanExporter):
    """Writes each span to a file as JSON."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self._path.open("a") as file:
            file.writelines(span.to_json(indent=None) + "\n" for span in spans)
        return SpanExportResult.SUCCESS


if SPANS:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(FileExporter(Path(SPANS))))
    trace.set_tracer_provider(provider)


if SENTRY:
    sentry_sdk.init(
        dsn=SENTRY, traces_sample_rate=1.0, attach_stacktrace=True, auto_enabling_integrations=False
    )
    attach(app, payload=True)


def be_careless(card: Any, note: str, ctx: Context, more: Sequence[str] = ()) -> None:
    """Tell a secret in every way but by raising or returning it."""
    log.warning("charging %s", {"card": card, "note": note}, extra={"told": [card, {str(card): note}]})
    log.warning(f"with {card} and {note}", stack_info=True)  # noqa: G004 - as programs do
    ctx.logger.warning("by the context: %s %s", card, note)
    try:
        raise KeyError(card, note)
    except KeyError:
        log.exception("it failed")
    sentry_sdk.add_breadcrumb(message=f"charging {card} {note}", data={"card": card, str(card): [note]})
    sentry_sdk.capture_message(f"charging {card} {note}")
    with sentry_sdk.start_span(op="charge", name=f"charge {card} {note}") as span:
        span.set_data("card", card)
    ctx.progress(0.5, f"charging {card} {note}")
    for text in more:
        log.warning("charging %r and %s", text, text)
    if more:
        sentry_sdk.capture_message(f"charging {'; '.join(more)}")
        with sentry_sdk.start_span(op="charge", name=f"charge {'; '.join(more)}") as span:
            span.set_data("more", more)
    ctx.note(told=card, text=f"{card} {note}", by={str(card): 1}, more=[*more])


@app.task(name="canary.leak", secret=["card", "more"], max_attempts=2)
async def leak(card: str, note: str, more: list[str], *, ctx: Context) -> None:
    be_careless(card, note, ctx, more)
    raise ValueError(f"declined {card} {note}", {card: 1}, more)


@app.task(name="canary.child", secret=["card", "more"], process=True)
def child(card: str, note: str, more: list[str], *, ctx: Context) -> None:
    be_careless(card, note, ctx, more)
    raise Fatal(f"declined {card} {note} {more}")


@app.task(name="canary.give", secret=["card", "more"])
def give(card: str, note: str, more: list[str], *, ctx: Context) -> dict[str, Any]:
    be_careless(card, note, ctx, more)
    return {"other": card, "text": f"paid with {card} {note}", "by": {card: card}, "all": [[card]]}


@app.task(name="canary.pass")
async def pass_on(account: Any, *, ctx: Context) -> Any:
    be_careless(account, "", ctx)
    return {"passed": account}


@app.task(name="canary.take", max_attempts=1)
async def take(account: Any, *, ctx: Context) -> None:
    be_careless(account, "", ctx)
    raise ValueError(f"cannot take {account}")
