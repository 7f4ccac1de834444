"""The finding about standbys: what a failover would lose, and whether commits wait for nobody."""

from collections.abc import Sequence

from ...._store.protocol import Finding
from ...findings import error, fine, warning
from ..connection.server import Server

SUBJECT = "replication"
_CONFIRMING = ("sync", "quorum")


def standby_finding(server: Server, states: Sequence[str | None]) -> Finding | None:
    """Return what to report, given the `sync_state` of each connected standby; None without replication."""
    named, number = server.has_synchronous_standbys, len(states)
    if not states and not named and not server.several_hosts:
        return None
    if states and None in states:
        return fine(
            SUBJECT,
            f"{_standbys(number)} connected; this user cannot see whether synchronous or not: "
            f"GRANT pg_monitor TO it",
        )
    confirming = sum(state in _CONFIRMING for state in states)
    if named and not confirming:
        return error(
            SUBJECT,
            "no synchronous standby is connected, so commits wait until one is: start one, or remove it from "
            "synchronous_standby_names, which gives up what a failover would need",
        )
    if not states:
        return warning(SUBJECT, "the URL names several hosts, but no standby is connected to the primary")
    if not named:
        return warning(
            SUBJECT,
            f"{_standbys(number)} connected, none of them synchronous, so a failover can lose the last "
            f"acknowledged commits; set synchronous_standby_names on every server",
        )
    if server.commit_level in ("off", "local", "remote_write"):
        return warning(
            SUBJECT,
            f"synchronous_commit is {server.commit_level} for this user, so commits do not wait until a "
            f"standby has them on disk; set synchronous_commit = on",
        )
    return fine(SUBJECT, f"{_standbys(number)} connected, {confirming} of them synchronous")


def _standbys(number: int) -> str:
    return "1 standby is" if number == 1 else f"{number} standbys are"
