"""The pytest plugin: `windlass_harness` puts an app on a store of the test until the test ends."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .harness import NewHarness


@pytest.fixture
def windlass_harness() -> "Iterator[NewHarness]":
    """Call it with your app: its tasks are then kept in memory and run by `run_until_idle`.

    Takes what `windlass.testing.harness.harness` takes. See docs/testing.md.
    """
    # Imported on use, so that it does not slow down pytest in projects that do not use it.
    from .harness import harness  # noqa: PLC0415

    with ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(harness(*args, **options))
