"""Refusals: requests without a valid key or the right to what they ask for, counted by their reason."""

from collections.abc import Mapping
from enum import StrEnum

from .problems import Problem


class Reason(StrEnum):
    """Why a request is refused: the label of the metric and the first words in the log."""

    NO_KEY = "no_key"  # it has none, or not as a bearer key
    UNKNOWN_KEY = "unknown_key"  # no such key, or another secret
    EXPIRED_KEY = "expired_key"
    REVOKED_KEY = "revoked_key"
    LOCKED_OUT = "locked_out"  # too many failed sign-ins to the dashboard
    SCOPE = "scope"  # the key lacks the scope
    BOUNDS = "bounds"  # the key is bound to a tenant or to queues
    HOST = "host"  # without keys: the name of another machine
    PROXY = "proxy"  # without keys: a proxy forwards it
    ORIGIN = "origin"  # without keys: a web page of another origin sends it


class Refusal(Problem):
    """A problem that is counted and logged. `key_id` is the id of the key that was sent, never its secret."""

    def __init__(
        self,
        code: str,
        detail: str,
        reason: Reason,
        *,
        key_id: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(code, detail, headers=headers)
        self.reason = reason
        self.key_id = key_id
