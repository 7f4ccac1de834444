"""Compare this tree with another commit: `python -m benchmarks.against COMMIT [PART ...]`.

Each tree runs its own programs of `benchmarks/runs`, in new processes on new stores. A round is one run of
each; which of them begins changes from round to round, and ratios are computed within the rounds. The commit
is laid out in build/against and uses the dependencies that this tree has installed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import machine, report
from benchmarks.figures import MICROSECONDS, MILLISECONDS, RATE, Figure, Findings, Target, ratio
from benchmarks.parts.jetstream import servers as jetstream
from benchmarks.parts.redis.sides import empty
from benchmarks.parts.redis.sides import started as started_redis
from benchmarks.processes import ROOT, Answer, RunFailed, run, running
from benchmarks.progress import tell
from tests.servers.postgres import DURABLE as POSTGRES_DURABLE
from tests.servers.postgres import Postgres
from tests.servers.process import free_port
from tests.servers.redis import DURABLE as REDIS_DURABLE

HERE = "this tree"
AT_LEAST = 0.98
SLOTS = {"memory": 500, "sqlite": 500, "postgres": 1_000, "redis": 250, "nats": 500}
DEFAULT_SLOTS = 32
CONNECTIONS = 16


@dataclass(frozen=True)
class Sizes:
    """The number of tasks of a run."""

    drained: int = 20_000
    enqueued: int = 2_000
    posted: int = 5_000


QUICK = Sizes(drained=200, enqueued=20, posted=50)

Fresh = Callable[[Path], AbstractContextManager[str]]
"""Makes a new, empty store for a run of a tree; yields its URL."""


@dataclass(frozen=True)
class Side:
    """One of the two trees, and what makes its stores."""

    who: str
    tree: Path
    sizes: Sizes
    _fresh: Fresh

    def fresh(self) -> AbstractContextManager[str]:
        """Make a new, empty store; yield its URL."""
        return self._fresh(self.tree)

    def run(self, program: str, verb: str, **options: Any) -> Answer:
        """Run a program of the tree and return its result."""
        return run(program, verb, tree=self.tree, **options)


Found = Iterator[tuple[str, str, float]]  # what, its unit, the value


def drain(side: Side, slots: int) -> Found:
    """Enqueue in bulk, then drain with one worker process: its rate and its processor time a task."""
    with side.fresh() as url:
        is_memory = url.startswith("memory:")
        if not is_memory:
            filled = side.run("on_windlass", "preload", url=url, number=side.sizes.drained)
            if slots != DEFAULT_SLOTS:  # once is enough
                yield "bulk of 1,000", RATE, filled["rate"]
        more = {"memory": True} if is_memory else {}
        drained = side.run("on_windlass", "drain", url=url, number=side.sizes.drained, slots=slots, **more)
    yield f"drain, {slots} slots", RATE, drained["rate"]
    yield f"{slots} slots: processor a task", MICROSECONDS, drained["processor"]


def single(side: Side) -> Found:
    """Enqueue one by one, blocking and from an event loop."""
    with side.fresh() as url:
        blocking = side.run("on_windlass", "enqueue", url=url, number=side.sizes.enqueued)
    yield "one, blocking", RATE, blocking["rate"]
    with side.fresh() as url:
        from_loop = side.run("on_windlass", "aenqueue", url=url, number=side.sizes.enqueued, callers=1)
    yield "one, async", RATE, from_loop["rate"]


def post(side: Side) -> Found:
    """Send POST /tasks over several connections."""
    port = free_port()
    with (
        side.fresh() as url,
        running("on_windlass_http", "serve", tree=side.tree, url=url, port=port) as server,
    ):
        there = {"url": url, "port": port}
        sent = side.run(
            "on_windlass_http", "post", **there, number=side.sizes.posted, connections=CONNECTIONS
        )
        server.say("go")
        server.say("stop")
        served = server.answer()
    yield "POST /tasks", RATE, sent["rate"]
    yield "POST /tasks, p50", MILLISECONDS, sent["p50"]
    yield "POST /tasks: processor each", MICROSECONDS, served["processor"] / side.sizes.posted * 1e6


def parts(store: str) -> dict[str, Callable[[Side], Found]]:
    """Return what is measured on a store."""
    drains = {"drain": partial(drain, slots=SLOTS[store]), "default": partial(drain, slots=DEFAULT_SLOTS)}
    return drains | ({"single": single, "post": post} if store != "memory" else {})


@contextmanager
def memory(_: Path) -> Iterator[Fresh]:
    @contextmanager
    def fresh(_: Path) -> Iterator[str]:
        yield "memory://"

    yield fresh


@contextmanager
def sqlite(folder: Path) -> Iterator[Fresh]:
    @contextmanager
    def fresh(_: Path) -> Iterator[str]:
        with tempfile.TemporaryDirectory(dir=folder) as home:
            yield f"sqlite:///{home}/tasks.db"

    yield fresh


@contextmanager
def postgres(folder: Path) -> Iterator[Fresh]:
    names = count()
    with Postgres.start(folder, settings=POSTGRES_DURABLE) as server:

        @contextmanager
        def fresh(_: Path) -> Iterator[str]:
            name = f"run_{next(names)}"
            yield server.new_database(name)
            with closing(psycopg.connect(server.url, autocommit=True)) as connection:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
                connection.execute("CHECKPOINT")

        yield fresh


@contextmanager
def redis(folder: Path) -> Iterator[Fresh]:
    with started_redis(folder, REDIS_DURABLE) as (url, client):

        @contextmanager
        def fresh(_: Path) -> Iterator[str]:
            empty(client)
            yield url

        yield fresh


@contextmanager
def nats(folder: Path) -> Iterator[Fresh]:
    with jetstream.started(folder, 1) as servers:

        @contextmanager
        def fresh(tree: Path) -> Iterator[str]:
            with servers.store(tree=tree) as store:
                yield store.url

        yield fresh


STORES = {"memory": memory, "sqlite": sqlite, "postgres": postgres, "redis": redis, "nats": nats}


def main() -> int:
    """Return 0 if no rate is below the bound, 1 if one is or a run is invalid."""
    asked = _asked()
    findings, sizes = Findings(), QUICK if asked.quick else Sizes()
    with tempfile.TemporaryDirectory(prefix="windlass-against-", dir=asked.folder) as name:
        folder = Path(name)
        folder.chmod(0o711)  # servers do not run as root, and must reach their data
        trees = {asked.commit: laid_out(asked.commit), HERE: ROOT}
        facts = machine.described(folder)
        print(f"{HERE} beside {asked.commit}; {asked.rounds} rounds, median (lowest to highest)\n")
        print(report.header(facts), flush=True)
        try:
            for store in asked.on:
                findings.facts[f"load, {store}"] = machine.load()
                with STORES[store](folder) as fresh:
                    sides = [Side(who, tree, sizes, fresh) for who, tree in trees.items()]
                    for part in asked.parts or parts(store):
                        if part in parts(store):
                            measure(findings, store, part, sides, asked.rounds)
        except RunFailed as failure:
            print(f"\ninvalid run: {failure}", file=sys.stderr)
            return 1
    print(f"{report.header(findings.facts)}\n{report.table(findings)}\n\n{report.verdicts(findings)}")
    return 0 if all(target.is_met for target in findings.targets) else 1


def measure(findings: Findings, store: str, part: str, sides: list[Side], rounds: int) -> None:
    """Run both sides in turn; add the figures, and the ratio of each as a target."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for number in range(rounds):
        for side in sides if number % 2 else sides[::-1]:
            tell(f"{store}, {part}, round {number + 1} of {rounds}: {side.who}")
            for what, unit, value in parts(store)[part](side):
                found.setdefault((what, unit), {}).setdefault(side.who, []).append(value)
    for (what, unit), values in found.items():
        before, after = (
            findings.add(Figure(store, what, side.who, unit, tuple(values[side.who]))) for side in sides
        )
        times = findings.add(ratio(store, what, after, before))
        if unit == RATE:
            findings.targets.append(Target(f"{what} on {store}", times, at_least=AT_LEAST))


def laid_out(commit: str) -> Path:
    """Return a folder with the files of the commit."""
    said = subprocess.run(
        ["git", "rev-parse", "--verify", f"{commit}^{{commit}}"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if said.returncode:
        sys.exit(f"no commit {commit}: {said.stderr.strip()}")
    name = said.stdout.strip()
    folder = ROOT / "build/against" / name[:12]
    if not folder.exists():
        begun = folder.with_name(f"{folder.name}.{os.getpid()}")
        begun.mkdir(parents=True)
        files = subprocess.run(["git", "archive", name], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(begun)], input=files, check=True)
        begun.rename(folder)
    return folder


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__)
    parser.add_argument("commit", help="what to compare with: a commit, tag or branch")
    known = list(parts("sqlite"))
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"which of {', '.join(known)}  [default: all]"
    )
    parser.add_argument("--on", action="append", choices=STORES, help="a store (repeatable)  [default: all]")
    parser.add_argument("--rounds", type=int, default=10, help="rounds  [default: 10]")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: only shows that it runs")
    parser.add_argument("--folder", type=Path, help="folder for the stores  [default: the temporary folder]")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - {*known}:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    asked.on = asked.on or list(STORES)
    return asked


if __name__ == "__main__":
    sys.exit(main())
