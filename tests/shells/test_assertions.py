"""`assert_enqueued` and `assert_not_enqueued`: what they accept, and what they say."""

from pathlib import Path
from uuid import UUID

import pytest

from windlass import App
from windlass.testing.harness import Harness, NewHarness

ORDER = UUID("01a1e231-3c36-7000-88ca-ca2e06f9e33e")


@pytest.fixture
def app() -> App:
    app = App("sqlite:///not-made-by-this-test.db")

    @app.task(name="mail", queue="mail", secret=["code"])
    def mail(user: dict[str, int], code: str = "") -> None: ...

    @app.task(name="ship")
    def ship(order: UUID, express: bool = False) -> None: ...

    return app


@pytest.fixture
def harness(windlass_harness: NewHarness, app: App) -> Harness:
    harness = windlass_harness(app)
    client = app.sync_client
    client.send("mail", {"user": {"id": 7, "age": 40}, "code": "sesame-1"})
    client.send("mail", {"user": {"id": 8, "age": 41}, "code": "sesame-2"}, tenant="acme", delay="1h")
    client.send("ship", {"order": ORDER, "express": True})
    return harness


def test_tasks_are_found_by_any_of_their_values(harness: Harness) -> None:
    assert len(harness.assert_enqueued()) == 3
    assert [task.tenant for task in harness.assert_enqueued("mail", number=2)] == ["", "acme"]
    harness.assert_enqueued("mail", {"user": {"id": 7}}, number=1)
    harness.assert_enqueued("mail", {"user": {"id": 8}}, queue="mail", tenant="acme")
    harness.assert_enqueued("ship", {"order": ORDER}, queue="default")

    harness.assert_not_enqueued("refund")
    harness.assert_not_enqueued("mail", {"user": {"id": 9}})
    harness.assert_not_enqueued("mail", queue="default")
    harness.assert_not_enqueued("ship", tenant="acme")
    harness.assert_not_enqueued("ship", {"express": 1})
    harness.assert_not_enqueued("ship", {"missing": None})


def test_a_task_counts_when_it_has_run(harness: Harness) -> None:
    harness.run_until_idle()
    harness.assert_enqueued("ship", number=1)


def test_a_failure_lists_what_was_enqueued(harness: Harness) -> None:
    with pytest.raises(AssertionError) as failure:
        harness.assert_enqueued("mail", {"user": {"id": 9}}, queue="mail", tenant="acme", number=2)

    message = str(failure.value)
    assert message.startswith(
        'expected 2 tasks of type mail with payload {"user": {"id": 9}} in '
        "queue 'mail' of tenant 'acme', found 0; enqueued were:"
    )
    assert len(message.splitlines()) == 4
    assert '"id": 8' in message
    assert "in queue 'mail', tenant 'acme': scheduled" in message
    assert "sesame" not in message


def test_a_failure_lists_what_should_not_be(harness: Harness) -> None:
    with pytest.raises(
        AssertionError, match="expected no task of type ship, found 1; enqueued were:"
    ) as failure:
        harness.assert_not_enqueued("ship")

    assert str(failure.value).splitlines()[1:] == [
        f'  ship {{"order": "{ORDER}", "express": true}} in queue \'default\': ready'
    ]


def test_a_long_list_is_cut(harness: Harness, app: App) -> None:
    for _ in range(30):
        app.sync_client.send("other", {})
    with pytest.raises(AssertionError, match=r"… and 13 more$"):
        harness.assert_enqueued("refund")


def test_nothing_is_said_so(windlass_harness: NewHarness, app: App) -> None:
    harness = windlass_harness(app)
    with pytest.raises(AssertionError, match="expected a task of type refund, found 0; nothing was enqueued"):
        harness.assert_enqueued("refund")


def test_a_failure_points_at_the_line_of_the_test(harness: Harness) -> None:
    for check in (lambda: harness.assert_enqueued("none"), lambda: harness.assert_not_enqueued("ship")):
        with pytest.raises(AssertionError) as caught:
            check()
        shown = caught.traceback.filter(caught)
        assert shown[-1].path == Path(__file__)
