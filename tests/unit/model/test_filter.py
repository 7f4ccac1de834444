"""Pages: all rows, in order, each once, in both directions."""

import pytest

from windlass._model.filter import Page, page_of


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
