"""The public names: what `windlass` exports is sorted, complete and importable."""

import subprocess
import sys
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


def test_a_module_whose_extra_is_missing_names_it() -> None:
    program = "import sys; sys.modules['starlette'] = None; import windlass.http"

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    last = done.stderr.splitlines()[-1]
    assert last.endswith("InvalidOption: serving HTTP needs an extra: pip install 'windlass[http]'")
