"""Invalid values of the model are refused when they are made."""

from datetime import timedelta
from typing import Any

import pytest

from windlass._model.filter import Filter
from windlass._model.queue import QueueSettings, Retention
from windlass._model.state import State
from windlass.errors import InvalidOption


@pytest.mark.parametrize("field", ["ids", "states", "types", "queues", "tenants"])
def test_a_filter_does_not_read_one_text_as_its_letters(field: str) -> None:
    wrong: dict[str, Any] = {field: "mail"}

    with pytest.raises(InvalidOption, match=rf"{field}.*\('mail',\)"):
        Filter(**wrong)


def test_a_filter_takes_any_sequence() -> None:
    assert Filter(states=[State.DEAD]) == Filter(states=(State.DEAD,))  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["14d", 5, timedelta(seconds=-1)])
def test_retention_is_a_duration_or_for_ever(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="retention of dead tasks"):
        Retention(dead=wrong)


def test_retention_may_be_for_ever_or_not_at_all() -> None:
    assert Retention(dead=None, completed=timedelta(0)).dead is None


@pytest.mark.parametrize("wrong", [0, -1, 65, "4", 1.5])
def test_a_queue_has_a_sane_number_of_stripes(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="stripes must be a whole number from 1 to 64"):
        QueueSettings(name="mail", stripes=wrong)
