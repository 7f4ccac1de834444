"""`windlass types`, and edited replays from the command line."""

from collections.abc import Callable

from .conftest import Run


def test_types_that_an_app_has_published_are_listed_and_removed(run: Run, work: Callable[[], None]) -> None:
    run("migrate")
    empty = run("types", "list")
    work()

    table = run("types", "list")
    rows = {row["name"]: row for row in run("types", "list", "--json").rows}
    removed = run("types", "remove", "shop.stay", "--why", "gone")
    again = run("types", "remove", "shop.stay")

    assert "no app has published" in empty.out + empty.err
    assert table.out.splitlines()[0].split()[:4] == ["type", "queue", "attempts", "timeout"]
    assert (rows["shop.welcome"]["queue"], rows["shop.welcome"]["max_attempts"]) == ("mail", 3)
    assert removed.out == "removed shop.stay\n"
    assert again.code == 3
    assert "no app has published a task type 'shop.stay'" in again.err


def test_an_edited_replay_is_checked_against_the_handler(
    run: Run, enqueue: Callable[..., str], work: Callable[[], None]
) -> None:
    made = enqueue("shop.explode")
    work()

    wrong = run("dead", "replay", made, "--payload", '{"text": 1}', "--app", "shop:app")
    right = run("dead", "replay", made, "--payload", '{"text": "again"}', "--app", "shop:app")

    assert wrong.code == 2
    assert "does not fit shop.explode(text: str = 'boom')" in wrong.err
    assert right.out == f"replayed {made}\n"
