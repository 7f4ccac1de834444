"""`windlass shards`: list, route, drain and remove the shards of a store, and the check of them."""

from pathlib import Path

import pytest

from windlass._stores.shards import admin

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


def test_other_stores_have_no_shards(run: Run) -> None:
    run("enqueue", "t", "{}")

    ran = run("shards", "list")

    assert (ran.code, "has no shards" in ran.err) == (2, True)
