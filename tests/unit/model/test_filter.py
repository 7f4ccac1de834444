"""Pages: all rows, in order, each once, in both directions."""

import pytest

from tests.unit.samples import NOW, running
from windlass._model.filter import Filter, Page, TaskDocuments, documents_of, page_of
from windlass._model.state import State


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


def test_only_pending_tasks_are_found_by_their_expiry() -> None:
    assert Filter(expires_before=NOW, states=(State.READY, State.WAITING)).is_expiring
    assert not Filter(expires_before=NOW, states=(State.READY, State.DEAD)).is_expiring
    assert not Filter(expires_before=NOW, states=()).is_expiring
    assert not Filter(expires_before=NOW).is_expiring
    assert not Filter(states=(State.READY,)).is_expiring


def test_the_documents_of_a_task_are_its_payload_steps_and_result() -> None:
    task = running(payload=b"{}", next=b"[]", result=b"1")

    assert documents_of(task) == TaskDocuments(payload=b"{}", next=b"[]", result=b"1")
