"""`windlass migrate`: steps up and down, and in two phases."""

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from tests.servers.postgres import Postgres
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
    assert (again.code, again.err) == (0, "the schema is up to date\n")
    assert "yes" in after.out
    assert "no" not in after.out.split()


def test_a_downgrade_needs_confirmation(run: Run) -> None:
    run("enqueue", "t")

    unsure = run("migrate", "--to", "0")
    kept = run("tasks", "list", "--json").rows
    sure = run("migrate", "--to", "0", "--yes")

    assert unsure.code == 3
    assert len(kept) == 1
    assert sure.code == 0
    assert run("tasks", "list").code == 3


class TestPhases:
    """Steps marked for before or after the deployment of the new version."""

    @pytest.fixture
    def further(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
        """Add steps of these phases to the schema; return the number of the newest step before."""
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

    def test_each_phase_takes_its_own_steps(self, run: Run, further: Callable[..., int]) -> None:
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
        assert again.err == "the schema is up to date\n"
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

    def test_phase_and_to_exclude_each_other(self, run: Run) -> None:
        assert run("migrate", "--phase", "before", "--to", "1").code == 2

    def test_the_phase_is_listed(self, run: Run) -> None:
        assert run("migrate", "--list").out.splitlines()[0].split() == ["number", "name", "phase", "applied"]


class TestSql:
    """Migrations as text."""

    STORE = "postgresql://nobody@db.invalid/shop?schema=tasks"

    def test_it_is_printed_without_a_connection(self, run: Run) -> None:
        all_steps = run("migrate", "--sql", "--from", "0", "--store", self.STORE)
        some = run("migrate", "--sql", "--from", "2", "--to", "4", "--store", self.STORE)

        assert all_steps.out.startswith("-- 0001 tasks, up (phase: before)\nBEGIN ")
        assert "CREATE TABLE tasks.task (" in all_steps.out
        assert [line[3:7] for line in some.out.splitlines() if line.startswith("-- 00")] == ["0003", "0004"]

    def test_what_is_there_already_is_asked_for(self, run: Run, postgres15: Postgres) -> None:
        url = f"{postgres15.url}?schema=t_{uuid4().hex[:16]}"
        run("migrate", "--to", "8", "--store", url)
        pending = run("migrate", "--sql", "--store", url)
        undone = run("migrate", "--sql", "--to", "7", "--store", url)
        before = run("migrate", "--sql", "--phase", "before", "--store", url)

        assert pending.out.startswith("-- 0009 ")
        assert undone.out.startswith("-- 0008 notes, down ")
        assert before.out == pending.out
        listed = run("migrate", "--list", "--json", "--store", url).rows
        assert [row["number"] for row in listed if row["applied"]][-1] == 8

    @pytest.mark.parametrize("options", [["--from", "3"], ["--sql", "--from", "3", "--phase", "after"]])
    def test_from_needs_sql_and_no_phase(self, run: Run, options: list[str]) -> None:
        assert run("migrate", *options, "--store", self.STORE).code == 2

    def test_a_file_is_migrated_by_windlass_only(self, run: Run) -> None:
        refused = run("migrate", "--sql")

        assert refused.code == 2
        assert "only those of a store on Postgres" in refused.err


@pytest.mark.parametrize("target", ["99", "-1", "x", "10000"])
def test_a_migration_must_exist(run: Run, target: str) -> None:
    assert run("migrate", "--to", target).code == 2
