"""`windlass alerts`: list, add, remove, test; and what `check` says of them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.loops.webhook_receiver import SECRET, webhook_receiver

from .conftest import Run


def test_without_alerts_there_is_a_hint_how_to_add_one(run: Run) -> None:
    run("migrate")

    assert "windlass alerts add" in run("alerts", "list").err
    assert run("alerts", "list", "--json").rows == []


def test_alerts_are_added_and_listed_with_their_numbers(run: Run, dead: Callable[..., list[str]]) -> None:
    dead("one", "two")
    added = run("alerts", "add", "all", "--count", "2", "--json")
    run(
        "alerts", "add", "mail", "--queue", "mail", "--window", "5m", "--hold", "1m", "--type", "shop.welcome"
    )

    head, first, second = run("alerts", "list").out.splitlines()
    rows = run("alerts", "list", "--json").rows

    assert added.row == {
        "name": "all",
        "state": "quiet",
        "raised_at": None,
        "below_since": None,
        "told_at": None,
        "number": 2,
        "exact": True,
        "count": 2,
        "window": None,
        "hold": 300.0,
        "type": None,
        "queue": None,
        "webhook": None,
        "unsent": 0,
    }
    assert head.split() == ["alert", "state", "since", "dead", "count", "window", "type", "queue"]
    assert first.split() == ["all", "quiet", "2", "2", "any", "any"]
    assert second.split() == ["mail", "quiet", "0", "1", "5", "m", "shop.welcome", "mail"]
    assert rows[1] == {
        "name": "mail",
        "state": "quiet",
        "raised_at": None,
        "below_since": None,
        "told_at": None,
        "number": 0,
        "exact": True,
        "count": 1,
        "window": 300.0,
        "hold": 60.0,
        "type": "shop.welcome",
        "queue": "mail",
        "webhook": None,
        "unsent": 0,
    }


def test_adding_again_changes_it(run: Run) -> None:
    run("migrate")
    run("alerts", "add", "all", "--count", "2")
    run("alerts", "add", "all", "--count", "3")

    assert [row["count"] for row in run("alerts", "list", "--json").rows] == [3]


def test_a_webhook_is_shown_whole_only_with_reveal(run: Run) -> None:
    run("migrate")
    added = run("alerts", "add", "all", "--webhook", "https://hooks.example/hunter2")
    listed = [run("alerts", "list", *options).out for options in ((), ("--json",))]
    revealed = [run("alerts", "list", "--reveal", *options).out for options in ((), ("--json",))]

    assert "WINDLASS_WEBHOOK_SECRET" in added.err
    assert all("https://hooks.example/…" in out or "https://hooks.example/\\u2026" in out for out in listed)
    assert not any("hunter2" in out for out in listed)
    assert all("hunter2" in out for out in revealed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--webhook", "ftp://hunter2.example"), "http:// or https://"),
        (("--webhook", "https://me:hunter2@a.example"), "must not contain a user name"),
        (("--count", "0"), "--count"),
        (("--window", "0"), "greater than 0"),
        (("--window", "soon"), "is not a duration"),
        (("--queue", "\x1b[2J"), "is not a valid name"),
    ],
)
def test_an_invalid_option_adds_nothing(run: Run, options: tuple[str, ...], message: str) -> None:
    run("migrate")
    ran = run("alerts", "add", "all", *options)

    assert ran.code == 2
    assert message in ran.err
    assert "hunter2" not in ran.err
    assert "\x1b" not in ran.err
    assert run("alerts", "list", "--json").rows == []


def test_alerts_are_removed(run: Run) -> None:
    run("migrate")
    run("alerts", "add", "all")

    assert run("alerts", "remove", "all").out == "removed all\n"
    again = run("alerts", "remove", "all")
    assert (again.code, "there is no alert 'all'" in again.err) == (3, True)


def test_a_test_message_is_posted_to_the_webhook(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("migrate")
    with webhook_receiver(200, 500, 200) as receiver:
        run("alerts", "add", "all", "--webhook", receiver.url)
        inside = run("alerts", "test", "all")
        monkeypatch.setenv("WINDLASS_ALLOW_ADDRESSES", "10.0.0.0/8, 127.0.0.1")
        unsigned = run("alerts", "test", "all")
        refused = run("alerts", "test", "all", "--json")
        monkeypatch.setenv("WINDLASS_WEBHOOK_SECRET", SECRET)
        signed = run("alerts", "test", "all")

    assert (inside.code, "127.0.0.1 is not public" in inside.out) == (1, True)
    assert (unsigned.code, unsigned.out) == (0, "accepted (unsigned): 200 OK\n")
    assert (refused.code, refused.row) == (
        1,
        {
            "name": "all",
            "taken": False,
            "signed": False,
            "status": 500,
            "reason": "500 Internal Server Error",
        },
    )
    assert (signed.code, signed.out) == (0, "accepted (signed): 200 OK\n")
    assert [message.signed for message in receiver.messages] == [False, False, True]
    assert receiver.states() == ["test"] * 3


def test_an_alert_without_a_webhook_cannot_be_tested(run: Run) -> None:
    run("migrate")
    run("alerts", "add", "all")

    missing, silent = run("alerts", "test", "other"), run("alerts", "test", "all")

    assert (missing.code, silent.code) == (3, 2)
    assert "has no webhook" in silent.err


def test_unsigned_webhooks_are_found_by_check(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("migrate")
    run("alerts", "add", "log")
    run("alerts", "add", "hook", "--webhook", "https://hooks.example/hunter2")

    unsigned = [row["message"] for row in run("check", "--json").rows if row["subject"] == "alerts"]
    monkeypatch.setenv("WINDLASS_WEBHOOK_SECRET", SECRET)
    signed = [row for row in run("check", "--json").rows if row["subject"] == "alerts"]

    assert len(unsigned) == 1
    assert "alert hook are not signed" in unsigned[0]
    assert signed == []


@pytest.mark.parametrize("app", [(), ("--app", "shop:app")])
def test_an_invalid_secret_is_refused_and_not_printed(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, app: tuple[str, ...]
) -> None:
    run("migrate")
    monkeypatch.setenv("WINDLASS_WEBHOOK_SECRET", "hunter2")

    ran = run("alerts", "list", *app)

    assert ran.code == 2
    assert "WINDLASS_WEBHOOK_SECRET: a webhook secret must have 24 to 64 bytes, not 7" in ran.err
    assert "hunter2" not in ran.err


def test_an_app_takes_its_secret_from_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("migrate")
    monkeypatch.setenv("WINDLASS_WEBHOOK_SECRET", SECRET)
    monkeypatch.setenv("WINDLASS_ALLOW_ADDRESSES", "127.0.0.1")
    with webhook_receiver() as receiver:
        run("alerts", "add", "all", "--webhook", receiver.url)
        ran = run("alerts", "test", "all", "--app", "shop:app")

    assert (ran.code, receiver.messages[0].signed) == (0, True)
