"""Pages: all rows, in order, each once, in both directions."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.unit.samples import NOW, running
from windlass._model.filter import By, Failure, Filter, Page, Replay, TaskDocuments, documents_of, page_of
from windlass._model.state import State
from windlass._model.task import MAX_DELAY
from windlass.errors import InvalidOption


@pytest.mark.parametrize("newest_first", [False, True])
def test_pages_follow_their_cursor_to_the_last_row(*, newest_first: bool) -> None:
    rows, read, cursor = ["b", "a", "e", "c", "d"], [], None

    while True:
        page = page_of(rows, Page(limit=2, cursor=cursor, newest_first=newest_first), str)
        read += page.items
        cursor = page.cursor
        if cursor is None:
            break

    assert read == sorted(rows, reverse=newest_first)


def test_no_rows_are_one_empty_page() -> None:
    assert page_of([], Page(), str).items == ()


def test_states_are_given_as_such_or_by_name() -> None:
    assert Filter(states=["ready", State.DEAD]).states == (State.READY, State.DEAD)  # type: ignore[arg-type]
    assert all(type(one) is State for one in Filter(states=("ready",)).states or ())  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match=r"states must be of waiting, scheduled, ready, .*, got 'redy'"):
        Filter(states=("redy",))  # type: ignore[arg-type]


def test_only_pending_tasks_are_found_by_their_expiry() -> None:
    assert Filter(expires_before=NOW, states=(State.READY, State.WAITING)).is_expiring
    assert not Filter(expires_before=NOW, states=(State.READY, State.DEAD)).is_expiring
    assert not Filter(expires_before=NOW, states=()).is_expiring
    assert not Filter(expires_before=NOW).is_expiring
    assert not Filter(states=(State.READY,)).is_expiring


def test_the_documents_of_a_task_are_its_payload_steps_and_result() -> None:
    task = running(payload=b"{}", next=b"[]", result=b"1")

    assert documents_of(task) == TaskDocuments(payload=b"{}", next=b"[]", result=b"1")


SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("run_at", "interval", "number", "due_at"),
    [
        (None, SECOND, 7, NOW),
        (NOW, SECOND, 0, NOW),
        (NOW, SECOND, 7, NOW + 7 * SECOND),
        (NOW - 5 * SECOND, SECOND, 3, NOW),
        (NOW - 5 * SECOND, SECOND, 7, NOW + 2 * SECOND),
        (NOW + SECOND, timedelta(0), 7, NOW + SECOND),
        (NOW, MAX_DELAY, 1, NOW + MAX_DELAY),
        (NOW, MAX_DELAY, 2, NOW + MAX_DELAY),
        (NOW, timedelta.max, 10**12, NOW + MAX_DELAY),
        (datetime.max.replace(tzinfo=UTC), timedelta(0), 0, NOW + MAX_DELAY),
        (datetime.min.replace(tzinfo=UTC), timedelta.max, 1, NOW + MAX_DELAY),
        (datetime.min.replace(tzinfo=UTC), SECOND, 1, NOW),
    ],
)
def test_replayed_tasks_are_due_one_after_another_within_bounds(
    run_at: datetime | None, interval: timedelta, number: int, due_at: datetime
) -> None:
    assert Replay(by=By(who="ada"), run_at=run_at, interval=interval).due_at(number, NOW) == due_at


def test_a_failure_as_a_dictionary_has_plain_values() -> None:
    failure = Failure(
        id="5d1f0c9a7b3e2468",
        type="mail",
        error=None,
        task_id="a",
        number=2,
        exact=True,
        first_at=NOW,
        last_at=NOW + SECOND,
        queues=("a", "b"),
    )

    document = failure.as_dict()

    assert (document["id"], document["number"], document["queues"]) == (failure.id, 2, ["a", "b"])
    assert isinstance(document["first_at"], str)
