"""`windlass queues`: list, show, pause, resume and set."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from .conftest import Run


def test_each_queue_is_listed_with_its_counts(run: Run, dead: Callable[..., list[str]]) -> None:
    dead("a")
    run("enqueue", "t", "-q", "mail")
    run("enqueue", "t", "-q", "mail", "--delay", "1h")

    head, default, mail = run("queues", "list").out.splitlines()
    rows = run("queues", "list", "--json").rows

    assert head.split() == ["queue", "waiting", "scheduled", "ready", "running", "dead", "oldest"]
    assert default.split() == ["default", "0", "0", "0", "0", "1"]
    assert mail.split()[:6] == ["mail", "0", "1", "1", "0", "0"]
    assert [(row["queue"], row["counts"]["ready"], row["counts"]["dead"]) for row in rows] == [
        ("default", 0, 1),
        ("mail", 1, 0),
    ]
    assert rows[0]["oldest_ready"] == 0
    assert rows[1]["oldest_ready"] >= 0


def test_the_tenants_of_a_queue(run: Run) -> None:
    for tenant, number in (("acme", 3), ("ada", 2), ("bob", 1)):
        for _ in range(number):
            run("enqueue", "t", "-q", "mail", "--tenant", tenant)
    run("queues", "set", "mail", "--fairness", "round_robin", "--weight", "ada=5")

    head, acme, ada = run("queues", "tenants", "mail", "-n", "2").out.splitlines()
    rows = run("queues", "tenants", "mail", "--json").rows

    assert head.split()[0] == "tenant"
    assert (acme.split()[0], acme.split()[3], acme.split()[-1]) == ("acme", "3", "1")
    assert (ada.split()[0], ada.split()[3], ada.split()[-1]) == ("ada", "2", "5")
    assert [(row["tenant"], row["counts"]["ready"]) for row in rows] == [("acme", 3), ("ada", 2), ("bob", 1)]
    assert "there is no queue 'mali'" in run("queues", "tenants", "mali").err


def test_a_queue_is_paused_and_resumed(
    run: Run, work: Callable[[], None], enqueue: Callable[..., str]
) -> None:
    task_id = enqueue("shop.welcome", '{"user_id": 1}')

    paused = run("queues", "pause", "mail", "--json")
    work()
    held = run("tasks", "show", task_id, "--json").row["state"]
    listed = run("queues", "list").out
    resumed = run("queues", "resume", "mail")
    work()

    assert (paused.row["queue"], paused.row["paused"]) == ("mail", True)
    assert held == "ready"
    assert "paused" in listed
    assert resumed.out == "resumed mail\n"
    assert run("tasks", "show", task_id, "--json").row["state"] == "completed"


@pytest.mark.parametrize(
    "command", [("pause",), ("resume",), ("stripe", "2"), ("set", "--ageing", "1m"), ("show",)], ids=" ".join
)
def test_an_unknown_queue_is_refused(run: Run, command: tuple[str, ...]) -> None:
    run("enqueue", "t", "-q", "mail")

    ran = run("queues", command[0], "mial", *command[1:])

    assert ran.code != 0
    assert "there is no queue 'mial'" in ran.err
    assert "did you mean 'mail'?" in ran.err
    assert ("--create" in ran.err) == (command != ("show",))
    assert [row["queue"] for row in run("queues", "list", "--json").rows] == ["mail"]


def test_a_new_queue_can_be_created(run: Run) -> None:
    run("migrate")

    ran = run("queues", "pause", "new", "newer", "--create")

    assert (ran.code, ran.out) == (0, "paused new\npaused newer\n")
    assert [row["queue"] for row in run("queues", "list", "--json").rows] == ["new", "newer"]


def test_of_several_queues_none_is_paused_if_one_is_unknown(run: Run) -> None:
    run("enqueue", "t", "-q", "mail")

    ran = run("queues", "pause", "mail", "nosuch")

    assert ran.code != 0
    assert [row["paused"] for row in run("queues", "list", "--json").rows] == [False]


def test_a_queue_is_removed_once_it_is_empty(run: Run) -> None:
    task_id = run("enqueue", "t", "-q", "mail", "--json").row["id"]
    run("queues", "pause", "mail")

    refused = run("queues", "remove", "mail")
    run("tasks", "cancel", task_id)
    removed = run("queues", "remove", "mail", "--why", "a typo")
    again = run("queues", "remove", "mail")

    assert refused.code != 0
    assert "queue 'mail' has 1 task" in refused.err
    assert (removed.code, removed.out) == (0, "removed mail\n")
    assert again.code != 0
    assert "no settings to remove" in again.err
    assert run("queues", "list", "--json").rows == []
    (line, *_) = run("audit", "--json").rows
    assert (line["action"], line["subject"], line["why"]) == ("remove", "queue mail", "a typo")


def test_stripes_without_effect_are_said(run: Run) -> None:
    run("enqueue", "t", "-q", "mail")

    assert "stripes have no effect on this store" in run("queues", "stripe", "mail", "4").err
    assert "stripes have no effect on this store" in run("queues", "set", "mail", "--stripes", "2").err
    assert "no effect" not in run("queues", "stripe", "mail", "1").err


def test_a_queue_must_be_a_name(run: Run) -> None:
    run("migrate")
    ran = run("queues", "pause", "\x1b[2J")

    assert ran.code == 2
    assert "\x1b" not in ran.err
    assert run("queues", "list", "--json").rows == []


def test_options_that_are_not_given_stay_as_they_are(run: Run) -> None:
    run("enqueue", "t", "-q", "mail")
    fair = ("--fairness", "round_robin", "--weight", "acme=3", "--weight", "bob=2")

    first = run("queues", "set", "mail", *fair, "--share", "low=10", "--ageing", "60s")
    second = run("queues", "set", "mail", "--weight", "bob=default", "--ageing", "strict", "--json").row
    listed = run("queues", "list").out.splitlines()[1]
    shown = run("queues", "show", "mail").out.splitlines()

    assert first.out == "mail: round_robin, 2 weights, 10% low, ageing 1 m\n"
    assert second["settings"]["weights"] == {"acme": 3}
    assert second["settings"]["shares"] == {"low": 10}
    assert second["settings"]["ageing"] is None
    assert listed.endswith("round_robin, 1 weight, 10% low")
    assert ["weights", "acme", "3"] in [line.split() for line in shown]
    assert run("queues", "set", "mail", "--fairness", "fifo", "--share", "low=default").out == "mail: fifo\n"
    assert run("queues", "show", "mail", "--json").row["settings"]["weights"] == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "at least one option"),
        (("--fairness", "fair"), "round_robin"),
        (("--weight", "acme"), "NAME=3"),
        (("--weight", "acme=lots"), "NAME=3"),
        (("--weight", "acme=3"), "weights need round_robin"),
        (("--fairness", "round_robin", "--weight", "acme=1000"), "1 to 100"),
        (("--share", "lowest=10"), "one of high, medium, low"),
        (("--share", "low=100"), "1 to 99"),
        (("--ageing", "soon"), "duration"),
        (("--fairness", "random", "--stripes", "4"), "leave stripes at 1"),
    ],
)
def test_an_invalid_setting_changes_nothing(run: Run, arguments: tuple[str, ...], message: str) -> None:
    run("migrate")

    ran = run("queues", "set", "mail", "--create", *arguments)

    assert ran.code == 2
    assert message in ran.err
    assert run("queues", "list", "--json").rows == []


def test_setting_or_showing_an_unknown_queue_warns(run: Run) -> None:
    run("enqueue", "t", "-q", "mail")

    assert "did you mean 'mail'?" in run("queues", "set", "mial", "--fairness", "random").err
    assert "did you mean 'mail'?" in run("queues", "show", "maill").err


def test_a_queue_has_windows(run: Run) -> None:
    run("enqueue", "t", "-q", "mail")
    soon = datetime.now(UTC) + timedelta(hours=3)
    hours = f"{soon:%H}:00-{soon + timedelta(hours=1):%H}:00"

    first = run("queues", "set", "mail", "--window", hours, "--json").row
    listed = run("queues", "list").out.splitlines()[1]
    shown = run("queues", "show", "mail").out
    found = [row["message"] for row in run("check", "--json").rows if row["subject"] == "windows"]
    weekdays, saturday = ("--window", "mon-fri 1:00-2:00"), ("--window", "sat 1:00-2:00 Asia/Tokyo")
    several = run("queues", "set", "mail", *weekdays, *saturday)
    always = run("queues", "set", "mail", "--window", "always", "--json").row

    opens = f"{soon:%Y-%m-%dT%H}:00:00"
    assert first["settings"]["windows"] == [f"{hours} UTC"]
    assert first["closed_until"].startswith(opens)
    assert f"closed until {opens}" in listed
    assert f"{hours} UTC" in shown
    assert [f"queue mail is closed until {opens}" in one for one in found] == [True]
    assert several.out == "mail: mon-fri 01:00-02:00 UTC; sat 01:00-02:00 Asia/Tokyo\n"
    assert (always["settings"]["windows"], always["closed_until"]) == ([], None)


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        (("22-06",), "a window is days, hours and a time zone"),
        (("1:00-2:00 Mars/Base",), "unknown time zone 'Mars/Base'"),
        (("always", "1:00-2:00"), "--window always excludes other windows"),
    ],
)
def test_a_wrong_window_is_a_usage_error(run: Run, windows: tuple[str, ...], message: str) -> None:
    ran = run("queues", "set", "mail", *(part for one in windows for part in ("--window", one)))

    assert ran.code == 2
    assert message in ran.err
