"""POST /tasks, durable, by 16 connections, compared with the same enqueue from Python by 16 callers.

The server, the sender and (on Postgres) the database share the machine's processors; from Python there is one
process fewer.
"""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

from benchmarks import databases
from benchmarks.figures import MILLISECONDS, RATE, Figure, Findings, Target, ratio
from benchmarks.parts.plan import Plan, url
from benchmarks.processes import Answer, run, running
from benchmarks.progress import tell
from benchmarks.sides import WINDLASS

PART = "HTTP"
PROGRAM = "on_windlass_http"
AT_ONCE = 16
AT_LEAST = 0.5
PROCESSES = 2
PYTHON, POST, POST_TO_SEVERAL = "from Python", "POST /tasks", f"POST /tasks, {PROCESSES} processes"


def measure(plan: Plan) -> Findings:
    """Run both ways in turn, round after round, on SQLite and on Postgres."""
    answers: dict[tuple[str, str], list[Answer]] = {}
    with databases.started(plan.folder, plan.version) as server:
        for turn in range(plan.rounds):
            for way in (PYTHON, POST, POST_TO_SEVERAL):
                path = plan.path(f"http-{turn}-{way.replace(' ', '-').replace('/', '')}")
                _note(answers, turn, "SQLite", way, _measured(way, url(path), plan.on_postgres.enqueued * 10))
                with server.fresh(WINDLASS) as fresh:
                    _note(
                        answers, turn, "Postgres", way, _measured(way, fresh, plan.on_postgres.enqueued * 20)
                    )
        findings = Findings(facts=server.described())
    for store in ("SQLite", "Postgres"):
        _compare(findings, store, *(answers[store, way] for way in (PYTHON, POST, POST_TO_SEVERAL)))
    return findings


def _note(
    answers: dict[tuple[str, str], list[Answer]], turn: int, store: str, way: str, answer: Answer
) -> None:
    answers.setdefault((store, way), []).append(answer)
    tell(f"http … round {turn + 1}, {store}, {way}: {answer['rate']:,.0f} /s")


def _compare(
    findings: Findings, store: str, python: list[Answer], post: list[Answer], several: list[Answer]
) -> None:
    what = f"{store}, {AT_ONCE} at once"
    rates = []
    for who, answers in ((PYTHON, python), (POST, post), (POST_TO_SEVERAL, several)):
        rates.append(findings.add(Figure(PART, what, who, RATE, tuple(one["rate"] for one in answers))))
        for point in ("p50", "p99"):
            values = tuple(one[point] for one in answers)
            findings.add(Figure(PART, f"{what}, {point}", who, MILLISECONDS, values))
    times = findings.add(ratio(PART, what, rates[1], rates[0]))
    findings.add(ratio(PART, what, rates[2], rates[1]))
    findings.targets.append(Target(f"POST /tasks on {store}, beside Python", times, at_least=AT_LEAST))


def _measured(way: str, where: str, number: int) -> Answer:
    if way == PYTHON:
        return run(PROGRAM, "direct", url=where, number=number, callers=AT_ONCE)
    verb, options = ("serve_processes", {"processes": PROCESSES}) if way == POST_TO_SEVERAL else ("serve", {})
    with _free_port() as port, running(PROGRAM, verb, url=where, port=port, **options) as server:
        answer = run(PROGRAM, "post", url=where, port=port, number=number, connections=AT_ONCE)
        server.say("go")
        server.say("stop")
        server.answer()
        return answer


@contextmanager
def _free_port() -> Iterator[int]:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    yield port
