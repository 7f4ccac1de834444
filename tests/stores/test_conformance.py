"""Every store keeps every promise of the seam."""

from windlass.testing.conformance import *  # noqa: F403  the promises, as test classes
