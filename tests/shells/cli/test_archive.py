"""`windlass archive` and --archive: how far history is archived, and how to stop it."""

from pathlib import Path

from .conftest import Run


def test_archiving_is_off_until_a_keeper_has_an_archive(run: Run) -> None:
    run("migrate")

    assert run("archive", "show").out.strip() == "archiving is off"
    assert run("archive", "show", "--json").row == {"until": None, "directory": None}
    assert run("archive", "stop").code != 0


def test_an_archive_that_cannot_be_written_is_refused_at_the_start(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    ran = run("keeper", "--archive", str(tmp_path / "file"))

    assert ran.code == 2
    assert "cannot write to the archive" in ran.err
