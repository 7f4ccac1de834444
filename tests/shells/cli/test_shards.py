"""`windlass shards`: list, route, drain and remove the shards of a store, and the check of them."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from windlass._model.record import Routes
from windlass._stores.shards import admin
from windlass._stores.shards.routes import place

from .conftest import Run


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes take effect at once, not after ten seconds: no other process uses these shards."""
    monkeypatch.setattr(admin, "EFFECTIVE_AFTER", admin.EFFECTIVE_AFTER * 0)


@pytest.fixture
def store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "shards.toml"
    urls = [f'{name} = "sqlite:///{folder}/{name}.db"' for name in "ab"]
    file.write_text("\n".join(["[shards]", *urls]))
    monkeypatch.setenv("WINDLASS_STORE", f"shards://{file}")


@pytest.mark.usefixtures("store")
def test_a_shard_is_drained_and_removed_and_added_again(run: Run) -> None:
    for number in range(8):
        run("enqueue", "t", "{}", "-q", f"q{number}")
    before = run("shards", "list", "--json").rows

    drained = run("shards", "drain", "b", "--why", "too old")
    refused = run("shards", "remove", "b")
    for number in range(8):
        run("enqueue", "t", "{}", "-q", f"q{number}")
    after = run("shards", "list", "--json").rows
    run("tasks", "cancel", "--all", "--yes")
    run("prune", "--cancelled", "0s")
    waited = run("shards", "drain", "b", "--wait", "--json").row
    removed = run("shards", "remove", "b")
    left = run("shards", "list").out
    added = run("shards", "add", "b", "--json").row

    assert [(row["name"], row["state"], row["home"]) for row in before] == [
        ("a", "open", True),
        ("b", "open", False),
    ]
    assert sum(row["tasks"] for row in before) == 8
    assert before[1]["tasks"] > 0
    assert drained.out.startswith(f"draining b: {before[1]['tasks']} tasks not ended")
    assert (refused.code, "still has" in refused.err) == (3, True)
    assert (after[1]["state"], after[1]["tasks"]) == ("draining", before[1]["tasks"])
    assert waited["unfinished"] == 0
    assert removed.out == "removed b\n"
    assert left.split()[-4:] == ["open", "(home)", "0", "0"]
    assert added == {"shard": "b", "state": "open"}
    audit = [(row["subject"], row["why"]) for row in run("audit", "--json").rows]
    assert audit.count(("shards map", "too old")) == 1


@pytest.mark.usefixtures("store")
def test_a_new_store_is_added_while_others_are_in_use(run: Run, folder: Path) -> None:
    run("enqueue", "t", "{}")
    with (folder / "shards.toml").open("a") as file:
        file.write(f'\nc = "sqlite:///{folder}/c.db"\n')

    listed = run("shards", "list", "--json")
    added = run("shards", "add", "c")

    assert (listed.code, [row["name"] for row in listed.rows]) == (0, ["a", "b"])
    assert (added.code, added.out) == (0, "added c\n")
    assert [row["name"] for row in run("shards", "list", "--json").rows] == ["a", "b", "c"]


@pytest.mark.usefixtures("store")
def test_a_drain_waits_for_a_shard_that_does_not_answer(run: Run, folder: Path) -> None:
    for number in range(8):
        run("enqueue", "t", "{}", "-q", f"q{number}")
    run("shards", "drain", "b")
    run("tasks", "cancel", "--all", "--yes")
    (folder / "b.db").rename(folder / "b.away")
    (folder / "b.db").write_text("no database" * 1000)

    def bring_back() -> None:
        (folder / "b.away").rename(folder / "b.db")

    timer = threading.Timer(1.0, bring_back)
    timer.start()
    rows = run("shards", "drain", "b", "--wait", "--json").rows
    timer.join()

    assert (rows[-1]["state"], rows[-1]["error"], rows[-1]["unfinished"]) == ("draining", "", 0)
    assert rows[-1]["tasks"] > 0


@pytest.mark.usefixtures("store")
def test_queues_are_routed(run: Run) -> None:
    run("enqueue", "t", "{}")
    by_tenant = run("shards", "route", "mail", "a", "b", "--by-tenant")
    run("shards", "route", "pdf", "b")

    rows = run("shards", "routes", "--json").rows
    run("shards", "route", "pdf")

    assert by_tenant.out == "routed mail to a, b by tenant\n"
    assert rows == [
        {"queue": "mail", "shards": ["a", "b"], "by_tenant": True},
        {"queue": "pdf", "shards": ["b"], "by_tenant": False},
    ]
    assert [row["queue"] for row in run("shards", "routes", "--json").rows] == ["mail"]
    assert run("shards", "route", "mail", "x").code == 2
    assert run("shards", "drain", "b").code == 3


@pytest.mark.usefixtures("store")
def test_the_check_shows_each_shard(run: Run) -> None:
    run("enqueue", "t", "{}")

    subjects = [row["subject"] for row in run("check", "--json").rows]

    assert {"shard a", "shard b", "a: schema", "b: schema"} <= set(subjects)


@pytest.mark.usefixtures("store")
def test_commands_show_a_shard_that_does_not_answer_and_use_the_others(run: Run, folder: Path) -> None:
    queue = next(f"q{n}" for n in range(99) if place(Routes(open=("a", "b")), f"q{n}", "") == "a")
    run("enqueue", "t", "{}", "-q", queue)
    (folder / "b.db").write_text("no database" * 1000)

    enqueued = run("enqueue", "t", "{}", "-q", queue)
    listed = run("shards", "list", "--json").rows
    tasks = run("tasks", "list", "-q", queue, "--json").rows
    everywhere = run("tasks", "list")
    check = run("check", "--json").rows
    frame = run("top", "--once", "--json").row
    lines = run("top", "--once").out

    assert enqueued.code == 0
    assert frame["missing_shards"] == ["b"]
    assert [row["queue"] for row in frame["overview"]["queues"]] == [queue]
    assert "shard b does not answer" in lines
    assert [row["state"] for row in listed] == ["open", "unavailable"]
    assert len(tasks) == 2
    assert (everywhere.code, "shard b: " in everywhere.err) == (4, True)
    assert {row["severity"] for row in check if row["subject"] == "shard b"} == {"error"}


def test_other_stores_have_no_shards(run: Run) -> None:
    run("enqueue", "t", "{}")

    ran = run("shards", "list")

    assert (ran.code, "has no shards" in ran.err) == (2, True)


def test_each_shard_on_nats_has_owners_of_its_own(run: Run, folder: Path) -> None:
    (folder / "shards.toml").write_text('[shards]\na = "nats://127.0.0.1:1/a"\nb = "sqlite:///b.db"\n')

    ran = run("owner", "--store", f"shards://{folder}/shards.toml")

    assert (ran.code, "with the URL of the shard" in ran.err) == (2, True)


@pytest.mark.usefixtures("store")
def test_a_shard_that_does_not_answer_is_named_once(run: Run, folder: Path) -> None:
    for number in range(8):
        run("enqueue", "t", "{}", "-q", f"q{number}")
    (folder / "b.db").write_text("no database" * 1000)

    command = [sys.executable, "-m", "windlass._cli.main", "tasks", "list", "--json"]
    listed = subprocess.run(command, cwd=folder, capture_output=True, check=False)  # with its own logging
    shards = run("shards", "list", "--json").rows
    findings = {row["subject"]: row for row in run("check", "--json").rows}

    assert listed.returncode == 4
    assert [list(json.loads(line)) for line in listed.stderr.splitlines()] == [["error"]]
    assert shards[1]["state"] == "unavailable"
    assert not shards[1]["error"].startswith("shard b")
    assert findings["shard b"]["severity"] == "error"
    assert findings["durability"]["message"].startswith("durable: of the open shards (a), a promises")
