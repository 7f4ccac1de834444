"""How long a client waits when the owner of a store or the leading node of its log dies.

A client enqueues one task after another. The gap is the longest time between two acknowledgements from the
fault until all processes are back; a client's requests of other verbs wait alike.
"""

import signal
import time
from collections.abc import Callable

from benchmarks.figures import MILLISECONDS, TASKS, Figure, Findings, Target
from benchmarks.parts.jetstream.servers import OWNER, STANDBY, OwnedStore, Servers, started
from benchmarks.parts.plan import Plan
from benchmarks.processes import running
from benchmarks.progress import tell

PART, WHO = "failover, JetStream, 3 nodes", "gap seen by a client"
TIMES = 2  # faults of each kind in a round
CALM_SECONDS = 2.0
GONE_SECONDS = 12.0
"""How long a node stays away: longer than the election of another leader takes."""

Fault = Callable[[Servers, OwnedStore], None]


def measure(plan: Plan) -> Findings:
    """Cause each fault several times, one after another, on one store with an owner and a standby."""
    faults: dict[str, Fault] = {
        "owner, kill -9": _kill_owner,
        "owner, SIGTERM": _stop_owner,
        "leading node, kill -9": _kill_leader,
        "leading node, SIGTERM": _stop_leader,
    }
    caused: list[tuple[str, float, float]] = []
    with started(plan.folder, 3) as servers, servers.store(owners=2) as store:
        with running("on_windlass_pulse", "pulse", url=store.url) as client:
            for number in range(plan.rounds * TIMES):
                for what, cause in faults.items():
                    tell(f"failover … {number + 1} of {plan.rounds * TIMES}: {what}")
                    time.sleep(CALM_SECONDS)
                    began = time.monotonic()
                    cause(servers, store)
                    caused.append((what, began, time.monotonic()))
            time.sleep(CALM_SECONDS)
            client.say("stop")
            answer = client.answer()
        findings = Findings(facts=servers.described())
    number = answer["acknowledged"]
    for what in faults:
        gaps = tuple(
            _gap(answer["gaps"], began, ended) * 1000 for name, began, ended in caused if name == what
        )
        findings.add(Figure(PART, what, WHO, MILLISECONDS, gaps))
    lost = findings.add(Figure(PART, f"lost of {number:,}", "windlass", TASKS, (answer["lost"],)))
    findings.targets.append(Target("no acknowledged task is lost", lost, at_most=0))
    return findings


def _gap(gaps: list[tuple[float, float]], began: float, ended: float) -> float:
    """Return the longest time without an acknowledgement during a fault; 0 if it was too short to note."""
    return max((last - first for first, last in gaps if last > began and first < ended), default=0.0)


def _kill_owner(_: Servers, store: OwnedStore) -> None:
    _replace_owner(store, signal.SIGKILL)


def _stop_owner(_: Servers, store: OwnedStore) -> None:
    _replace_owner(store, signal.SIGTERM)


def _replace_owner(store: OwnedStore, by: signal.Signals) -> None:
    store.stop(store.owner(), by)
    store.start_owner()
    store.wait_for({OWNER: 1, STANDBY: 1})


def _kill_leader(servers: Servers, store: OwnedStore) -> None:
    _restart_leader(servers, store, signal.SIGKILL)


def _stop_leader(servers: Servers, store: OwnedStore) -> None:
    _restart_leader(servers, store, signal.SIGTERM)


def _restart_leader(servers: Servers, store: OwnedStore, by: signal.Signals) -> None:
    leader = servers.leader(store)
    leader.stop(by)
    time.sleep(GONE_SECONDS)
    leader.start_again()
    store.wait_for({OWNER: 1, STANDBY: 1})
