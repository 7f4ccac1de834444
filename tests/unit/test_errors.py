"""Errors: one tree, one code each, as the module docstring shows."""

import inspect
import re

import pytest

from windlass import errors
from windlass.errors import NotFinished, StoreError, StoreUnavailable, WindlassError

CLASSES = [
    value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, WindlassError)
]


def drawn() -> dict[str, str | None]:
    """Each error of the module's drawing and the one it hangs from."""
    parents: dict[str, str | None] = {"WindlassError": None}
    last = "WindlassError"
    for indent, name in re.findall(r"^    (.{3})?[├└]─ (\w+)", inspect.getdoc(errors), re.MULTILINE):
        parents[name] = last if indent else "WindlassError"
        last = last if indent else name
    return parents


def test_the_tree_is_as_drawn() -> None:
    tree = {cls.__name__: None if cls is WindlassError else cls.__bases__[0].__name__ for cls in CLASSES}

    assert drawn() == tree


def test_each_error_has_a_code_of_its_own() -> None:
    codes = [cls.__dict__["code"] for cls in CLASSES]

    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes)


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if issubclass(cls, StoreError)])
def test_only_an_unavailable_store_is_worth_trying_again(cls: type[StoreError]) -> None:
    assert cls.transient is issubclass(cls, StoreUnavailable)


def test_a_wait_that_ran_out_is_also_a_timeout() -> None:
    assert issubclass(NotFinished, TimeoutError)
