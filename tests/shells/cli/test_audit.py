"""`windlass audit`: every change by the command line is recorded with who and why."""

import getpass
import json
import socket
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Run

BEFORE = (
    ("queues", "pause", "shut", "--create", "--who", "before"),
    ("limits", "set", "old", "--create", "--all", "--running", "1", "--who", "before"),
    ("alerts", "add", "old", "--who", "before"),
    ("schedules", "add", "old", "t", "1h", "--who", "before"),
    ("schedules", "add", "paused", "t", "1h", "--who", "before"),
    ("schedules", "pause", "paused", "--who", "before"),
)


@pytest.mark.parametrize(
    ("command", "action", "subject"),
    [
        ("queues pause mail --create", "pause", "queue mail"),
        ("queues resume shut", "resume", "queue shut"),
        ("queues remove shut", "remove", "queue shut"),
        ("queues stripe mail 2 --create", "set", "queue mail"),
        ("queues set mail --ageing 5m --create", "set", "queue mail"),
        ("limits set calls --create --all --running 2 --by tenant", "create", "limit calls"),
        ("limits change old --running 2", "set", "limit old"),
        ("limits remove old", "remove", "limit old"),
        ("alerts add many", "create", "alert many"),
        ("alerts remove old", "remove", "alert old"),
        ("schedules add new t 1h", "create", "schedule new"),
        ("schedules pause old", "pause", "schedule old"),
        ("schedules resume paused", "resume", "schedule paused"),
        ("schedules remove old", "remove", "schedule old"),
        ("keys create web --scope read", "create", "key "),
        ("prune --dead 1d", "prune", "tasks"),
    ],
)
def test_every_command_that_changes_something_is_logged(
    run: Run, command: str, action: str, subject: str
) -> None:
    for arguments in BEFORE:
        run("migrate")
        assert run(*arguments).code == 0

    ran = run(*command.split(), "--who", "ann", "--why", "too much mail")

    assert ran.code == 0, ran.err
    (line,) = [line for line in run("audit", "--json").rows if line["who"] != "before"]
    assert (line["who"], line["why"]) == ("ann", "too much mail")
    assert (line["action"], line["task_id"]) == (action, None)
    assert line["subject"].startswith(subject)


def test_a_key_that_was_revoked_is_logged_by_its_id_alone(run: Run) -> None:
    made = run("keys", "create", "web", "--scope", "read", "--json").row
    run("keys", "revoke", made["id"], "--why", "leaked")

    revoked, created = run("audit", "--json").rows

    assert (revoked["action"], revoked["subject"], revoked["why"]) == (
        "revoke",
        f"key {made['id']}",
        "leaked",
    )
    assert (created["action"], created["subject"]) == ("create", f"key {made['id']}")
    assert json.loads(created["detail"])["label"] == "web"
    assert made["key"] not in str(created)


def test_who_defaults_to_the_user_and_host(run: Run) -> None:
    run("migrate")
    run("queues", "pause", "mail", "sms", "--create")
    run("schedules", "add", "nightly", "t", "1h")
    task_id = run("schedules", "trigger", "nightly").out.strip()
    assert f"triggered task {task_id}" in run("audit").out
    other = run("schedules", "trigger", "nightly", "--who", "ann").out.strip()

    me = f"{getpass.getuser()}@{socket.gethostname()}"
    assert {line["who"] for line in run("audit", "--json").rows} == {me, "ann"}
    assert run("tasks", "show", task_id, "--json").row["enqueued_by"] == f"{me}, schedule nightly"
    assert run("tasks", "show", other, "--json").row["enqueued_by"] == "ann, schedule nightly"


def test_the_table_says_what_was_done_in_80_columns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    task_id = run("enqueue", "t").out.strip()
    run("tasks", "cancel", task_id, "--who", "ann", "--why", "twice")
    run("queues", "pause", "mail", "--create", "--who", "bob")

    monkeypatch.setenv("COLUMNS", "80")
    lines = run("audit").out.splitlines()

    assert lines[0].split() == ["when", "who", "what"]
    assert lines[1].split()[-4:] == ["bob", "paused", "queue", "mail"]
    assert "cancelled task" in lines[2]
    assert f"{task_id} (t) (twice)" in " ".join(" ".join(lines[2:]).split())
    assert max(map(len, lines)) <= 80


def test_the_log_is_listed_in_pages(run: Run) -> None:
    ids = run("enqueue", "t", "--stdin", stdin="{}\n" * 3).out.split()
    run("tasks", "cancel", *ids, "--who", "ada", "--why", "spring")

    page = run("audit", "--limit", "2")
    first = run("audit", "--limit", "2", "--json").rows
    rest = run("audit", "--json", "--cursor", first[-1]["id"]).rows

    assert "there are more entries; --cursor" in page.err
    assert ids[2] in page.out
    assert ids[0] not in page.out
    assert [entry["task_id"] for entry in [*first, *rest]] == ids[::-1]


REVEALS = [
    (("tasks", "list"), ""),
    (("tasks", "show", "{id}"), ""),
    (("dead", "list"), ""),
    (("dead", "show", "{id}"), ""),
    (("schedules", "show", "nightly"), "schedule nightly"),
    (("alerts", "list"), "alert many"),
]


@pytest.mark.parametrize(("command", "subject"), REVEALS, ids=lambda value: "-".join(value[:2]))
def test_revealing_secrets_is_recorded(
    run: Run, dead: Callable[..., list[str]], command: tuple[str, ...], subject: str
) -> None:
    (task_id,) = dead("boom")
    run("schedules", "add", "nightly", "shop.welcome", "1h", '{"user_id": 1, "card": "4111"}')
    run("alerts", "add", "many", "--webhook", "https://hooks.example.org/T0/hunter2")
    command = tuple(part.format(id=task_id) for part in command)

    def told() -> list[dict[str, Any]]:
        return [line for line in run("audit", "--json").rows if line["action"] == "reveal"]

    assert run(*command).code == 0
    assert told() == []
    assert run(*command, "--reveal").code == 0

    (line,) = told()
    assert line["who"] == f"{getpass.getuser()}@{socket.gethostname()}"
    assert (line["task_id"], line["subject"]) == ((None, subject) if subject else (task_id, ""))
    assert line["summary"].startswith("revealed secrets of ")
