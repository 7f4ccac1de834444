"""Task ids: which text is spelled like one."""

import pytest

from windlass._ids import new_id
from windlass._model.task import is_task_id

ID = "0199c3a2-7d10-7abc-8def-0123456789ab"


@pytest.mark.parametrize("wrong", ["", "mail", ID.upper(), f"{ID}\n", None, 7])
def test_anything_but_a_uuid_in_lower_case_is_no_task_id(wrong: object) -> None:
    assert is_task_id(ID)
    assert is_task_id(new_id())
    assert not is_task_id(wrong)
