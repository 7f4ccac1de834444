"""`windlass prune`: by the app's retention or by ages."""

from collections.abc import Callable

from .conftest import Run


def test_ages_are_required_without_an_app(
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
