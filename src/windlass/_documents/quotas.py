"""Quotas of tenants, and how much of each is used."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from .._model.limit import Quota, Use
from .._policy.quota import TenantUse, quota_of
from .fields import build_document

MAX_USES = 1_000
"""The quota of all other tenants may have any number of users; its document lists the fullest."""


class TenantUseDocument(Struct, kw_only=True):
    """What a tenant has stored, and the share of the quota that is; above 1 it is exceeded."""

    tenant: str
    tasks: int
    bytes: int
    share: float


class QuotaDocument(Struct, kw_only=True):
    """How much a tenant may have stored (null: any number), and what is used, fullest first.

    The tenant `*` stands for every tenant without an own quota; at most 1,000 of them are listed.
    """

    tenant: str
    tasks: int | None
    bytes: int | None
    in_use: list[TenantUseDocument]


class QuotaList(Struct, kw_only=True):
    """Every quota, by tenant."""

    items: list[QuotaDocument]


def tenant_quota(
    quotas: Mapping[str, Quota], used: Mapping[str, Use], tenant: str | None
) -> QuotaDocument | None:
    """Build the document of the quota that applies to a tenant, with what it uses; None if there is none."""
    quota = None if tenant is None else quota_of(quotas, tenant)
    if quota is None or tenant is None:
        return None
    return quota_document(quota, [TenantUse(tenant, used.get(tenant, Use()))])


def quota_document(quota: Quota, users: Iterable[TenantUse]) -> QuotaDocument:
    """Build a quota's document; `users` are sorted, fullest first."""
    uses = [
        build_document(TenantUseDocument, one.use, tenant=one.tenant, share=round(quota.share(one.use), 4))
        for one in [*users][:MAX_USES]
    ]
    return build_document(QuotaDocument, quota, tenant=quota.name, in_use=uses)
