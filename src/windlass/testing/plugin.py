"""The pytest plugin: `windlass_harness` puts an app on a memory store for the length of a test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..app import App
    from .harness import Harness


@pytest.fixture
def windlass_harness() -> "Iterator[Callable[[App], Harness]]":
    """Call it with your app: its tasks are then kept in memory and run by `run_until_idle`."""
    # Imported on use, so that it does not slow down pytest in projects that do not use it.
    from .harness import harness  # noqa: PLC0415

    with ExitStack() as stack:
        yield lambda app: stack.enter_context(harness(app))
