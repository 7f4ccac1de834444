"""The frame of ready-made handlers: settings from tables, all at once, and the OpenAPI document."""

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.docs.blocks import DOCS
from windlass import App, InvalidOption, handlers
from windlass._http.app import OPERATIONS
from windlass._http.docs.openapi import document, with_types
from windlass.config import read_settings
from windlass.handlers.responses import noted_text, retry_after
from windlass.handlers.selection import KINDS, include_configured
from windlass.handlers.settings import required

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


def test_a_table_declares_a_handler() -> None:
    app = App("memory://")
    selected = include_configured(app, {"webhooks": {"timeout": "7", "queue": "hooks"}})

    assert selected.declared == ("deliver_webhook",)
    assert app.types["deliver_webhook"].defaults.queue == "hooks"


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"webhook": {}}, "did you mean 'webhooks'"),
        ({"webhooks": {"timeot": 7}}, "handlers.webhooks: .*timeot"),
        ({"webhooks": {"timeout": "soon"}}, "handlers.webhooks: .*timeout"),
    ],
)
def test_a_wrong_table_is_refused(tables: dict[str, dict[str, object]], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        include_configured(App("memory://"), tables)


def test_every_handler_can_be_declared_or_says_what_it_needs() -> None:
    app = App("memory://")
    selected = include_configured(app, {}, every=True)

    assert {*selected.declared} == {*app.types}
    assert {*selected.declared, *selected.left_out} == {kind.task for kind in KINDS.values()}


def test_tables_come_from_the_file_and_fields_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "windlass.toml"
    file.write_text('[handlers.webhooks]\nqueue = "hooks"\ntimeout = 5\n')
    found = read_settings(file, {"WINDLASS_HANDLERS_WEBHOOKS_TIMEOUT": "9", "WINDLASS_ALL_HANDLERS": "yes"})

    assert found.errors == found.warnings == ()
    assert found.settings.handlers == {"webhooks": {"queue": "hooks", "timeout": "9"}}
    assert found.settings.all_handlers is True


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "windlass.toml"
    file.write_text('handlers = "all"\n')

    assert "must have a table for each handler" in read_settings(file, {}).errors[0]


@pytest.mark.system
def test_a_worker_needs_no_app_to_run_them(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).parent / "windlass"), "worker", "--handlers", "--drain"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=40, check=False)

    assert done.returncode == 0, done.stderr
    assert "ready-made handlers: resize_image, generate_report, deliver_webhook" in done.stderr
    assert "send_email is off: handlers.email: Object missing required field `sender`" in done.stderr


def test_a_missing_extra_is_named() -> None:
    with pytest.raises(InvalidOption, match=re.escape("x needs an extra: pip install 'windlass[images]'")):
        required("windlass_no_such_module", "images", "x")


def test_examples_are_in_the_openapi_document() -> None:
    app = App("memory://")
    app.include(handlers.Webhooks())
    made = with_types(document(OPERATIONS), app.types.values())

    content = made["paths"]["/tasks"]["post"]["requestBody"]["content"]["application/json"]
    example = content["examples"]["deliver_webhook"]
    assert example["value"]["payload"] == app.types["deliver_webhook"].example
    assert example["summary"] == "Send JSON to an endpoint, signed."
    schema = made["components"]["schemas"]["payload.deliver_webhook"]
    assert schema["required"] == ["endpoint", "body"]
    assert schema["properties"]["secret"]["writeOnly"] is True


def test_an_example_must_be_a_payload() -> None:
    with pytest.raises(InvalidOption, match="the example of 'pay' is not a payload of it"):
        App("memory://").task(name="pay", example={"amount": "much"})(_pay)


def _pay(amount: int) -> None: ...


def test_every_setting_is_documented() -> None:
    page = (DOCS / "handlers.md").read_text()
    missing = [
        f"{name}.{field}"
        for name, kind in KINDS.items()
        for field in kind.__struct_fields__
        if f"| `{field}` |" not in page.partition(f"## {kind.task}")[2].partition("\n## ")[0]
    ]

    assert missing == []


@pytest.mark.parametrize(
    ("value", "delay"),
    [
        (None, None),
        ("120", timedelta(minutes=2)),
        ("99999999999", timedelta(days=1)),
        ("Mon, 16 Nov 2026 12:00:30 GMT", timedelta(seconds=30)),
        ("Mon, 16 Nov 2026 11:00:00 GMT", timedelta()),
        ("soon", None),
        ("-5", None),
        ("²", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, delay: timedelta | None) -> None:
    assert retry_after(value, NOW) == delay


def test_noted_text_fits() -> None:
    assert noted_text(b"\x01" * 9_000, 3_000) == "\x01" * len(noted_text(b"\x01" * 9_000, 3_000))
    assert noted_text(b"a\xff\0b") == "a\ufffd\ufffdb"
