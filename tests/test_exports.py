"""The public names: what `windlass` exports is sorted, complete and importable."""

from types import ModuleType

import pytest

import windlass

MAX_NAMES = 43


def test_exports_are_sorted_and_named_once() -> None:
    assert list(windlass.__all__) == sorted(set(windlass.__all__))


def test_exports_are_few() -> None:
    assert 0 < len(windlass.__all__) <= MAX_NAMES


def test_exports_are_complete() -> None:
    public = {
        name
        for name, value in vars(windlass).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }

    assert public == {name for name in windlass.__all__ if not name.startswith("_")}


@pytest.mark.parametrize("name", windlass.__all__)
def test_an_export_is_there(name: str) -> None:
    assert getattr(windlass, name) is not None


def test_the_package_defines_nothing_itself() -> None:
    defined = [name for name in windlass.__all__ if getattr(windlass, name).__module__ == "windlass.__init__"]

    assert not defined
