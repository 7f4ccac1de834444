"""Options of other task queues are refused with what to use here."""

import re
from inspect import signature
from typing import Any, get_overloads

import pytest

from windlass import App, InvalidOption
from windlass._model.options import Options
from windlass._policy.other_queues import _OPTIONS, METHODS, check_keywords
from windlass.tasktype import TaskType


def declare(*, queue: str = "", max_attempts: int = 1, **unknown: Any) -> None:
    check_keywords(declare, unknown)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("bind", "unknown option 'bind'; use a parameter `ctx: Context` of the handler"),
        ("maxattempts", "unknown option 'maxattempts'; did you mean 'max_attempts'?"),
        ("zzz", "unknown option 'zzz'; the options are queue, max_attempts"),
    ],
)
def test_an_unknown_keyword_is_refused_with_what_to_use(given: str, message: str) -> None:
    declare(queue="mail", max_attempts=3)
    with pytest.raises(InvalidOption, match=f"^{re.escape(message)}$"):
        declare(**{given: 1})


def test_every_hint_names_what_there_is() -> None:
    ours = {*Options.__annotations__, *signature(get_overloads(App.task)[-1]).parameters, "running"}
    words = " ".join(_OPTIONS.values())

    assert {*re.findall(r"\b(\w+)=", words)} <= ours
    assert all(hasattr(App, name) for name in re.findall(r"\bapp\.(\w+)", words))
    assert not ours & _OPTIONS.keys()
    assert all(hasattr(TaskType, name) for text in METHODS.values() for name in re.findall(r"(\w+)\(", text))
