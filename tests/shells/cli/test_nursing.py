"""`windlass migrate`, `check`, `prune`, `audit`, `version`, `completion`."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from windlass._stores.migrations import Step
from windlass._stores.sqlite import schema

from .conftest import Run


def test_migrating_makes_a_store_and_is_idempotent(run: Run, folder: Path) -> None:
    before = run("migrate", "--list", "--json").rows
    first = run("migrate", "--json").rows
    again = run("migrate")
    after = run("migrate", "--list")

    assert [row["applied"] for row in before] == [False] * len(before)
    assert [row["number"] for row in first] == [row["number"] for row in before]
    assert (again.code, again.err) == (0, "nothing to do\n")
    assert "yes" in after.out
    assert "no" not in after.out.split()


def test_going_down_takes_a_yes(run: Run) -> None:
    run("enqueue", "t")

    unsure = run("migrate", "--to", "0")
    kept = run("tasks", "list", "--json").rows
    sure = run("migrate", "--to", "0", "--yes")

    assert unsure.code == 3
    assert len(kept) == 1
    assert sure.code == 0
    assert run("tasks", "list").code == 3


class TestPhases:
    """Two steps for before the new version and one for after it; or in an order that takes care."""

    @pytest.fixture
    def further(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
        """Have the code know further steps, of these phases; answers with how many there were."""
        known = schema.steps()

        def make(*phases: str) -> int:
            more = [
                Step(
                    number=len(known) + n,
                    name=f"more{n}",
                    up=f"-- phase: {phase}\nCREATE TABLE more{n} (a);",
                    down=f"DROP TABLE more{n};",
                )
                for n, phase in enumerate(phases, 1)
            ]
            monkeypatch.setattr(schema, "steps", lambda: (*known, *more))
            return len(known)

        return make

    def test_first_the_one_and_then_the_other(self, run: Run, further: Callable[..., int]) -> None:
        run("migrate")
        newest = further("before", "before", "after")

        refused = run("tasks", "list")
        before = run("migrate", "--phase", "before", "--json").rows
        works = run("tasks", "list")
        listed = run("migrate", "--list", "--json").rows
        again = run("migrate", "--phase", "before")
        after = run("migrate", "--phase", "after", "--json").rows

        assert (refused.code, works.code) == (5, 0)
        assert [(row["number"], row["phase"]) for row in before] == [
            (newest + 1, "before"),
            (newest + 2, "before"),
        ]
        assert (listed[-1]["phase"], listed[-1]["applied"]) == ("after", False)
        assert again.err == "nothing to do\n"
        assert [(row["number"], row["phase"]) for row in after] == [(newest + 3, "after")]

    def test_a_step_that_would_come_too_early_is_refused(self, run: Run, further: Callable[..., int]) -> None:
        run("migrate")
        newest = further("after", "before")

        refused = run("migrate", "--phase", "before")

        assert refused.code == 3
        assert f"{newest + 2:04d} belongs before" in refused.err
        assert len(run("migrate", "--json").rows) == 2

    def test_a_new_store_takes_them_all(self, run: Run, further: Callable[..., int]) -> None:
        newest = further("after", "before", "after")

        assert len(run("migrate", "--phase", "before", "--json").rows) == newest + 3

    def test_a_phase_and_a_number_do_not_go_together(self, run: Run) -> None:
        assert run("migrate", "--phase", "before", "--to", "1").code == 2

    def test_the_phase_is_listed(self, run: Run) -> None:
        assert run("migrate", "--list").out.splitlines()[0].split() == ["number", "name", "phase", "applied"]


@pytest.mark.parametrize("target", ["99", "-1", "x", "10000"])
def test_a_migration_must_exist(run: Run, target: str) -> None:
    assert run("migrate", "--to", target).code == 2


def test_check_reports_each_finding(run: Run) -> None:
    run("migrate")

    table = run("check")
    rows = run("check", "--json").rows

    assert table.code == 0
    assert table.out.splitlines()[0].split() == ["severity", "subject", "finding"]
    assert rows[0] == {"severity": "ok", "subject": "durability", "message": rows[0]["message"]}
    assert {row["severity"] for row in rows} == {"ok"}


def test_check_warns_of_tasks_that_nobody_will_claim(run: Run) -> None:
    run("enqueue", "t", "-q", "mail")

    ran = run("check", "--json")

    assert ran.code == 0
    warnings = [row["message"] for row in ran.rows if row["severity"] == "warning"]
    assert any("no live worker serves the queue mail" in message for message in warnings)


def test_check_tells_what_is_wrong_with_the_settings(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("windlass.toml").write_text("slot = 3")
    monkeypatch.setenv("WINDLASS_SHINY", "yes")

    ran = run("check", "--json")

    assert ran.code == 1
    assert [(row["severity"], row["subject"]) for row in ran.rows] == [
        ("warning", "settings"),
        ("error", "settings"),
    ]
    assert run("tasks", "list").code == 2


def test_pruning_without_an_app_takes_ages(
    run: Run, enqueue: Callable[..., str], work: Callable[[], None]
) -> None:
    enqueue("shop.welcome", '{"user_id": 1}')
    enqueue("shop.explode")
    work()

    unclear = run("prune")
    by_app = run("prune", "--app", "shop:app")
    by_age = run("prune", "--completed", "0", "--json")

    assert unclear.code == 2
    assert "--app" in unclear.err
    assert by_app.out == "pruned 0 records\n"
    assert by_age.row == {"pruned": 1}
    assert [row["state"] for row in run("tasks", "list", "--json").rows] == ["dead"]


def test_the_audit_comes_in_pages(run: Run) -> None:
    ids = run("enqueue", "t", "--stdin", stdin="{}\n" * 3).out.split()
    run("tasks", "cancel", *ids, "--who", "ada", "--why", "spring")

    page = run("audit", "--limit", "2")
    first = run("audit", "--limit", "2", "--json").rows
    rest = run("audit", "--json", "--cursor", first[-1]["id"]).rows

    assert "there are more: --cursor" in page.err
    assert page.out.splitlines()[1].split()[-3:] == [ids[2], "ada", "spring"]
    assert [entry["task_id"] for entry in [*first, *rest]] == ids[::-1]


def test_the_version_is_told(run: Run) -> None:
    assert run("version").out.startswith("windlass 0.")
    assert set(run("version", "--json").row) == {"windlass", "python"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(run: Run, shell: str) -> None:
    ran = run("completion", shell)

    assert ran.code == 0
    assert "_WINDLASS_COMPLETE" in ran.out


def test_completion_completes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_WINDLASS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "windlass ta")
    monkeypatch.setenv("COMP_CWORD", "1")

    assert "tasks" in run().out


class TestAStoreThatCannotBeUsed:
    """Each gets one line that says what to do, and an exit code of its own."""

    def test_a_folder_that_is_missing(self, run: Run, folder: Path) -> None:
        for command in (("tasks", "list"), ("enqueue", "t"), ("check",), ("migrate",)):
            ran = run("--store", f"sqlite:///{folder}/missing/windlass.db", *command)
            assert ran.code == 4
            assert "does not exist" in ran.err

    def test_a_folder_in_the_place_of_the_file(self, run: Run, folder: Path) -> None:
        assert run("--store", f"sqlite:///{folder}", "tasks", "list").code == 4

    def test_a_file_that_is_no_database(self, run: Run, folder: Path) -> None:
        ran = run("--store", f"sqlite:///{folder}/shop.py", "--json", "tasks", "list")

        assert ran.code == 4
        assert "not a windlass database" in json.loads(ran.err)["error"]["message"]

    def test_a_schema_from_the_future(self, run: Run, folder: Path) -> None:
        run("enqueue", "t")
        with sqlite3.connect("windlass.db") as connection:
            connection.execute("UPDATE windlass_schema SET number = 99")
        connection.close()

        for command in (("tasks", "list"), ("enqueue", "t"), ("dead", "replay", "--all"), ("migrate",)):
            ran = run(*command)
            assert ran.code == 5
            assert ran.err.startswith("error[schema-mismatch]: ")
            assert "upgrade windlass" in ran.err

    def test_looking_does_not_make_one(self, run: Run, folder: Path) -> None:
        for command in (("tasks", "list"), ("queues", "list"), ("dead", "replay", "--all"), ("check",)):
            ran = run(*command)
            assert ran.code == 3
            assert "there is no store at sqlite:///windlass.db yet" in ran.err

    @pytest.mark.parametrize(
        "url", ["nonsense", "oracle://x", "sqlite://x.db", "sqlite:///:memory:", "memory://"]
    )
    def test_a_url_that_leads_nowhere(self, run: Run, url: str) -> None:
        assert run("--store", url, "tasks", "list").code == 2

    def test_a_password_is_not_repeated(self, run: Run) -> None:
        assert "hunter2" not in run("--store", "postgres://ada:hunter2@host/db", "tasks", "list").err
