"""Quotas: what they allow, and how full they are."""

import pytest

from windlass._model.limit import MAX_STORED_BYTES, MAX_STORED_TASKS, Quota, Use
from windlass.errors import InvalidOption


def test_uses_add_up() -> None:
    assert Use(1, 10) + Use(2, 5) == Use(3, 15)
    assert Use(3, 15) - Use(2, 5) == Use(1, 10)


@pytest.mark.parametrize(
    ("quota", "use", "share"),
    [
        (Quota(name="a", tasks=10), Use(5, 10**9), 0.5),
        (Quota(name="a", bytes=10), Use(10**6, 5), 0.5),
        (Quota(name="a", tasks=10, bytes=100), Use(1, 90), 0.9),
        (Quota(name="a", tasks=10), Use(12, 0), 1.2),
        (Quota(name="a", tasks=0), Use(), 1.0),
    ],
)
def test_the_share_is_that_of_the_fuller_part(quota: Quota, use: Use, share: float) -> None:
    assert quota.share(use) == share


def test_what_fits_exactly_is_admitted() -> None:
    quota = Quota(name="a", tasks=10, bytes=100)
    assert quota.admits(Use(9, 90), Use(1, 10))
    assert not quota.admits(Use(9, 90), Use(2, 10))
    assert not quota.admits(Use(9, 90), Use(1, 11))
    assert Quota(name="a", tasks=10).admits(Use(0, 10**15), Use(10, 1))
    assert Quota(name="a", bytes=10).admits(Use(10**12, 0), Use(1, 10))
    assert not Quota(name="a", tasks=0).admits(Use(), Use(1))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "needs tasks, bytes or both"),
        ({"tasks": -1}, "tasks must be from 0"),
        ({"tasks": MAX_STORED_TASKS + 1}, "tasks must be from 0"),
        ({"bytes": -1}, "bytes must be from 0"),
        ({"bytes": MAX_STORED_BYTES + 1}, "bytes must be from 0"),
    ],
)
def test_what_is_no_quota(given: dict[str, int], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        Quota(name="a", **given)
