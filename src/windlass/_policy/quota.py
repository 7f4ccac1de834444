"""Quotas of tenants: their options, what a batch of tasks adds, and which quota it would exceed."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from .._model.filter import Count
from .._model.limit import MAX_STORED_BYTES, OTHERS, Quota, Use
from .._model.task import NewTask
from ..errors import InvalidOption
from .input.chain import Step, decode_steps, tenant_of
from .input.options import checked_name
from .input.quote import quoted

NEARLY_FULL = 0.9
"""The share of a quota from which it is reported."""

_UNITS = {
    "": 1,
    "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
    "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) ?([kmgt]i?)?b?", re.ASCII | re.IGNORECASE)


class TenantUse(Struct, frozen=True, gc=False):
    """What one tenant uses of its quota; the tenant "" has the tasks without one."""

    tenant: str
    use: Use


def new_quota(tenant: str, *, tasks: int | None = None, bytes: int | str | None = None) -> Quota:
    """Return a validated quota. Raises InvalidOption."""
    if tenant != OTHERS:
        checked_name(tenant, "tenant")
    if tasks is not None and (isinstance(tasks, bool) or not isinstance(tasks, int)):
        raise InvalidOption(f"tasks must be a whole number, got {quoted(tasks)}")
    return Quota(name=tenant, tasks=tasks, bytes=None if bytes is None else parse_size(bytes))


def parse_size(value: int | str) -> int:
    """Parse a number of bytes: a whole number, or text such as "500MB" or "2GiB"."""
    match value:
        case int() if not isinstance(value, bool) and 0 <= value <= MAX_STORED_BYTES:
            return value
        case str() if found := _SIZE.fullmatch(value):
            size = round(float(found[1]) * _UNITS[(found[2] or "").lower()])
            if size <= MAX_STORED_BYTES:
                return size
        case _:
            pass
    raise InvalidOption(
        f'bytes must be a number or text such as "500MB" or "2GiB", from 0 to {MAX_STORED_BYTES:,} bytes, '
        f"got {quoted(value)}"
    )


def format_size(size: int) -> str:
    """Format a number of bytes with one decimal: "950 B", "1.5 MB"."""
    for unit in ("TB", "GB", "MB", "kB"):
        if size >= (one := _UNITS[unit[0].lower()]):
            return f"{size / one:.1f} {unit}"
    return f"{size} B"


# -- use ---------------------------------------------------------------------------------------------


def uses(counts: Iterable[Count]) -> dict[str, Use]:
    """Return what each tenant has stored, from sized counts by tenant."""
    return {count.values[0]: Use(count.number + count.steps, count.bytes) for count in counts}


def demand(batch: Iterable[NewTask]) -> dict[str, Use]:
    """Return what a batch adds for each tenant: its tasks, and all steps that will follow them."""
    added: dict[str, Use] = defaultdict(Use)
    for task in batch:
        added[task.tenant] += Use(1, len(task.payload) + len(task.next or b""))
        for tenant in _tenants(decode_steps(task.next), task.tenant):
            added[tenant] += Use(1)
    return dict(added)


def _tenants(steps: Sequence[Step], before: str) -> Iterable[str]:
    """Yield the tenant of each step at any depth."""
    for step in steps:
        tenant = tenant_of(step, before)
        yield tenant
        yield from _tenants(step.next, tenant)


def quota_of(quotas: Mapping[str, Quota], tenant: str) -> Quota | None:
    """Return the quota that applies to a tenant: its own, or that of all others."""
    return quotas.get(tenant) or quotas.get(OTHERS)


def first_exceeded(
    quotas: Mapping[str, Quota], used: Mapping[str, Use], wanted: Mapping[str, Use]
) -> TenantUse | None:
    """Return the first tenant whose quota does not allow what is wanted, and what it uses."""
    for tenant, more in wanted.items():
        quota, use = quota_of(quotas, tenant), used.get(tenant, Use())
        if quota is not None and not quota.admits(use, more):
            return TenantUse(tenant, use)
    return None


def by_quota(quotas: Mapping[str, Quota], used: Mapping[str, Use]) -> dict[str, list[TenantUse]]:
    """Return which tenants use each quota, fullest first; a tenant with an own quota also if it uses none."""
    found: dict[str, list[TenantUse]] = {name: [] for name in quotas}
    own = {name: Use() for name in quotas if name != OTHERS}
    for tenant, use in {**own, **used}.items():
        quota = quota_of(quotas, tenant)
        if quota is not None:
            found[quota.name].append(TenantUse(tenant, use))
    return {
        name: sorted(users, key=lambda one: (-quotas[name].share(one.use), one.tenant))
        for name, users in found.items()
    }
