"""`windlass prune`: by the retention of queues and types, or by ages."""

from collections.abc import Callable

from .conftest import Run


def test_ages_are_required_until_an_app_has_published_its_types(
    run: Run, enqueue: Callable[..., str], work: Callable[[], None]
) -> None:
    enqueue("shop.welcome", '{"user_id": 1}')
    enqueue("shop.explode")

    unclear = run("prune")
    work()
    by_declarations = [run("prune"), run("prune", "--app", "shop:app")]
    by_age = run("prune", "--completed", "0", "--json")

    assert unclear.code == 2
    assert "--app" in unclear.err
    assert [one.out for one in by_declarations] == ["pruned 0 records\n"] * 2
    assert by_age.row == {"pruned": 1}
    assert [row["state"] for row in run("tasks", "list", "--json").rows] == ["dead"]
