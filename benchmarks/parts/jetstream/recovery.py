"""A store with a million tasks on JetStream: how long a process takes to own it that has no copy of it."""

import signal
import time

from benchmarks.figures import BYTES, MEGABYTES, MILLISECONDS, Figure, Findings
from benchmarks.parts.jetstream.drain import fill
from benchmarks.parts.jetstream.servers import OWNER, OwnedStore, resident_megabytes, started
from benchmarks.parts.plan import LEAST, Plan
from benchmarks.processes import run
from benchmarks.progress import tell

PROGRAM = "on_jetstream"
PART = "recovery, JetStream, 3 nodes"
SOME = 100_000  # tasks that one process enqueues
STEPS = {
    "played": "play the log",
    "uploaded": "upload a snapshot",
    "downloaded": "download a snapshot",
}
SIZES = {"log": "log", "file": "file of an owner", "packed": "snapshot"}


def measure(plan: Plan) -> Findings:
    """Fill one store, hand it over to nobody, then recover it once a round: step by step, and as a whole."""
    number = plan.on_postgres.beside
    steps: dict[str, list[float]] = {}
    sizes: dict[str, float] = {}
    claimed = []
    with started(plan.folder, 3) as servers, servers.store() as store:
        for done in range(0, number, SOME):
            fill(store.url, max(LEAST, min(SOME, number)))
            tell(f"recovery … {min(done + SOME, number):,} of {number:,}")
        memory = resident_megabytes(store.owner())
        for turn in range(plan.rounds):
            store.stop(store.owner(), signal.SIGTERM)
            folder = plan.folder / f"recovery-{turn}"
            folder.mkdir()
            answer = run(PROGRAM, "recover", url=store.url, folder=str(folder))
            for name in STEPS:
                steps.setdefault(name, []).append(answer[name] * 1000)
            sizes = {name: answer[name] for name in SIZES}
            claimed.append(_claimed(store) * 1000)
        findings = Findings(facts=servers.described())
    what = f"{number:,} tasks"
    for name, step in STEPS.items():
        findings.add(Figure(PART, f"{what}: {step}", "standby", MILLISECONDS, tuple(steps[name])))
    findings.add(Figure(PART, f"{what}: start to first claim", "new owner", MILLISECONDS, tuple(claimed)))
    for name, size in SIZES.items():
        findings.add(Figure(PART, f"{what}: {size}", "windlass", MEGABYTES, (sizes[name],)))
        findings.add(Figure(PART, f"a ready task: {size}", "windlass", BYTES, (sizes[name] * 1e6 / number,)))
    findings.add(Figure(PART, f"{what}: memory", "owner", MEGABYTES, (memory,)))
    return findings


def _claimed(store: OwnedStore) -> float:
    """Return the seconds from the start of a process without a copy to the first claim that it answers."""
    began = time.monotonic()
    store.start_owner()
    claimed: float = run(PROGRAM, "claim", url=store.url)["claimed"]
    store.wait_for({OWNER: 1})
    return claimed - began
