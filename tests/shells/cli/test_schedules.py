"""`windlass schedules`: list, show, add, pause, resume, trigger, remove, next."""

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Run

DECLARED = """

app.schedule("weekly", welcome.step(user_id=1, card="4111"), "30 2 * * 1", zone="Europe/Berlin")
"""


def add(run: Run, *arguments: str) -> None:
    ran = run("schedules", "add", *arguments)
    assert ran.code == 0, ran.err


def test_an_added_schedule_is_listed_and_shown(run: Run) -> None:
    add(
        run,
        "nightly",
        "shop.tidy",
        "0 3 * * *",
        '{"deep": true}',
        "--zone",
        "Europe/Berlin",
        "--queue",
        "slow",
    )
    add(run, "often", "shop.poll", "90s", "--overlap", "skip", "--jitter", "5s")

    head, nightly, often = run("schedules", "list").out.splitlines()
    rows = run("schedules", "list", "--json").rows
    shown = run("schedules", "show", "nightly").out

    assert head.split() == ["schedule", "rule", "zone", "type", "next", "last", "state"]
    assert nightly.split()[:8] == ["nightly", "0", "3", "*", "*", "*", "Europe/Berlin", "shop.tidy"]
    assert nightly.split()[-1] == often.split()[-1] == "active"
    assert "every 1m30s" in often
    assert [(row["name"], row["cron"], row["every"]) for row in rows] == [
        ("nightly", "0 3 * * *", None),
        ("often", None, 90.0),
    ]
    assert rows[0]["payload"] == {"deep": True}
    assert rows[0]["next_at"].endswith("Z")
    assert (rows[1]["overlap"], rows[1]["jitter"]) == ("skip", 5.0)
    assert not {"since", "next"} & {*rows[0]}
    assert "by an operator" in shown
    assert '{"deep": true}' in shown


def test_the_next_ticks_are_shown_in_the_zone_and_in_utc(run: Run) -> None:
    add(run, "nightly", "t", "30 2 * * *", "--zone", "Asia/Kolkata")

    head, *lines = run("schedules", "next", "nightly", "-n", "3").out.splitlines()
    rows = run("schedules", "next", "nightly", "--json").rows

    assert head.split() == ["tick", "utc"]
    assert len(lines) == 3
    assert all("02:30:00 IST" in line and "T21:00:00.000Z" in line for line in lines)
    assert len(rows) == 5
    assert {*rows[0]} == {"name", "at"}


def test_a_repeated_trigger_with_a_key_enqueues_one_task(run: Run) -> None:
    run("schedules", "add", "s", "t", "1h")
    first = run("schedules", "trigger", "s", "--key", "k", "--json").row
    again = run("schedules", "trigger", "s", "--key", "k", "--json").row

    assert first == {"id": first["id"], "created": True}
    assert again == {"id": first["id"], "created": False}
    assert "the idempotency key was used before" in run("schedules", "trigger", "s", "--key", "k").err


def test_a_schedule_is_paused_resumed_triggered_and_removed(run: Run) -> None:
    add(run, "a", "t", "1h", '{"x": 1}')

    paused = run("schedules", "pause", "a", "--json").row
    assert (paused["name"], paused["paused"], paused["next_at"]) == ("a", True, None)
    assert run("schedules", "list").out.split()[-1] == "paused"
    assert "is paused" in run("schedules", "next", "a").err
    assert run("schedules", "resume", "a").out == "resumed a\n"
    task_id = run("schedules", "trigger", "a").out.strip()
    assert run("tasks", "show", task_id, "--json").row["payload"] == {"x": 1}
    assert run("schedules", "remove", "a").out == "removed a\n"
    assert "there are no schedules" in run("schedules", "list").err


def test_an_existing_name_needs_replace(run: Run) -> None:
    add(run, "a", "t", "1h")

    refused = run("schedules", "add", "a", "t", "2h")
    replaced = run("schedules", "add", "a", "t", "2h", "--replace", "--json")

    assert refused.code == 3
    assert "--replace" in refused.err
    assert replaced.row["every"] == 7200.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a", "t", "0 25 * * *"), "invalid hour '25'"),
        (("a", "t", "soon"), "cron expression or an interval"),
        (("a", "t", "0 3 * * *", "--zone", "Europe/Berln"), "did you mean 'Europe/Berlin'?"),
        (("a", "t", "1h", "[]"), "payload"),
        (("a", "t", "1h", "{"), "not JSON"),
        (("a b", "t", "1h"), "is not a valid name"),
        (("\x1b[2J", "t", "1h"), "is not a valid name"),
        (("a", "t", "1h", "--missed", "twice"), "Invalid value for '--missed'"),
        (("a", "t", "1h", "--at-most", "0"), "at-most"),
        (("a", "t", "1h", "--priority", "9999"), "priority"),
        (("a", "t", "*/5", "*", "*", "*", "*"), "unexpected extra argument"),
    ],
)
def test_invalid_arguments_are_refused_and_add_nothing(
    run: Run, arguments: tuple[str, ...], message: str
) -> None:
    run("migrate")

    ran = run("schedules", "add", *arguments)

    assert ran.code == 2
    assert message in ran.err
    assert "\x1b" not in ran.err
    assert run("schedules", "list", "--json").rows == []


def test_with_an_app_the_payload_is_checked_and_the_type_has_its_defaults(run: Run) -> None:
    app = ("--app", "shop:app")
    wrong = run("schedules", "add", "a", "shop.welcome", "1h", '{"user": 1}', *app)
    unknown = run("schedules", "add", "a", "shop.welcom", "1h", *app)
    secret = run(
        "schedules", "add", "a", "shop.welcome", "1h", '{"user_id": 1, "card": "4111"}', *app, "--json"
    )

    assert (wrong.code, unknown.code) == (2, 2)
    assert "does not fit shop.welcome" in wrong.err
    assert "no task type 'shop.welcom'" in unknown.err
    assert (secret.row["queue"], secret.row["max_attempts"]) == ("mail", 3)
    assert "4111" not in secret.out + run("schedules", "show", "a").out
    assert run("schedules", "show", "a", "--reveal", "--json").row["payload"]["card"] == "4111"


def test_an_unknown_schedule_is_not_found_with_a_hint(run: Run) -> None:
    add(run, "report", "t", "1h")

    for verb in ("show", "pause", "resume", "trigger", "remove", "next"):
        ran = run("schedules", verb, "reprot")
        assert ran.code == 3
        assert "did you mean 'report'?" in ran.err


def test_listing_does_not_create_a_store(run: Run, folder: Path) -> None:
    assert run("schedules", "list").code == 3
    assert not (folder / "windlass.db").exists()


@pytest.mark.system
def test_a_worker_declares_schedules_and_fires_them(
    run: Run, folder: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    often = '\n\n@app.task(name="shop.often", schedule="1s")\nasync def often() -> None: ...\n'
    (folder / "shop.py").write_text((folder / "shop.py").read_text() + often + DECLARED)
    worker = start("worker", "shop:app", "--log-format", "json", "--log-level", "info")
    assert worker.stderr is not None
    while json.loads(worker.stderr.readline()).get("task_type") != "shop.often":
        pass

    rows = {row["name"]: row for row in run("schedules", "list", "--json").rows}
    app = ("--app", "shop:app")
    assert rows["shop.often"]["last_at"] is not None
    assert (rows["weekly"]["declared"], rows["weekly"]["last_at"]) == (True, None)
    assert "4111" not in str(rows)
    assert run("schedules", "list", *app).err == ""
    (folder / "shop.py").write_text((folder / "shop.py").read_text().replace(DECLARED, ""))
    assert "not by this app: weekly" in run("schedules", "list", *app).err
    assert "is declared in code" in run("schedules", "remove", "weekly").err
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0
