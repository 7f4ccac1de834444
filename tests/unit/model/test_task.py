"""Task ids: which text is spelled like one."""

import pytest

from windlass._ids import new_id
from windlass._model.task import is_task_id


@pytest.mark.parametrize("wrong", ["", "mail", new_id().upper(), f"{new_id()}\n", None, 7])
def test_anything_but_a_uuid_in_lower_case_is_no_task_id(wrong: object) -> None:
    assert is_task_id(new_id())
    assert not is_task_id(wrong)
