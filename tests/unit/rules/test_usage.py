"""Usage: the permits in use of limits that exist."""

from tests.unit.samples import NOW
from windlass._model.limit import Limit, Usage
from windlass._policy.order.limits import Permit, PermitUsage
from windlass._stores.rules.usage import usages


def test_permits_in_use_are_reported_with_the_starts_left() -> None:
    capped = Limit(name="capped", running=2)
    rated = Limit(name="rated", rate=1.0, burst=5)
    keys = [Permit(limit, "acme").key for limit in (capped, rated, Limit(name="gone", running=1))]

    found = usages(
        [capped, rated],
        {keys[0]: PermitUsage(2), keys[1]: PermitUsage(0, 3.0, NOW), keys[2]: PermitUsage(1)},
        NOW,
    )

    assert found == [
        Usage(name=keys[0], limit="capped", value="acme", running=2),
        Usage(name=keys[1], limit="rated", value="acme", running=0, tokens=3.0),
    ]


def test_a_permit_that_was_only_locked_is_not_in_use() -> None:
    limit = Limit(name="capped", running=2)

    assert usages([limit], {Permit(limit, "").key: PermitUsage(0)}, NOW) == []
