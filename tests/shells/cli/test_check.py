"""`windlass check`: findings about settings, store and queues."""

from pathlib import Path

import pytest

from .conftest import Run


def test_check_reports_each_finding(run: Run) -> None:
    run("migrate")

    table = run("check")
    rows = run("check", "--json").rows

    assert table.code == 0
    assert table.out.splitlines()[0].split() == ["severity", "subject", "finding"]
    assert rows[0] == {"severity": "ok", "subject": "durability", "message": rows[0]["message"]}
    assert {row["severity"] for row in rows} == {"ok"}


def test_check_warns_of_queues_that_no_worker_serves(run: Run) -> None:
    run("enqueue", "t", "-q", "mail")

    ran = run("check", "--json")

    assert ran.code == 0
    warnings = [row["message"] for row in ran.rows if row["severity"] == "warning"]
    assert any("no live worker serves queue mail (1 ready task)" in message for message in warnings)


def test_check_reports_invalid_settings(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("windlass.toml").write_text("slot = 3")
    monkeypatch.setenv("WINDLASS_SHINY", "yes")

    ran = run("check", "--json")

    assert ran.code == 1
    assert [(row["severity"], row["subject"]) for row in ran.rows] == [
        ("warning", "settings"),
        ("error", "settings"),
    ]
    assert run("tasks", "list").code == 2
