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
PYTHON, POST = "from Python", "POST /tasks"


def measure(plan: Plan) -> Findings:
    """Run both ways in turn, round after round, on SQLite and on Postgres."""
    answers: dict[tuple[str, str], list[Answer]] = {}
    with databases.started(plan.folder, plan.version) as server:
        for turn in range(plan.rounds):
            for way in (PYTHON, POST):
                path = plan.path(f"http-{turn}-{way.partition(' ')[0]}")
                _note(answers, turn, "SQLite", way, _measured(way, url(path), plan.on_postgres.enqueued * 10))
                with server.fresh(WINDLASS) as fresh:
                    _note(
                        answers, turn, "Postgres", way, _measured(way, fresh, plan.on_postgres.enqueued * 20)
                    )
        findings = Findings(facts=server.described())
    for store in ("SQLite", "Postgres"):
        _compare(findings, store, answers[store, PYTHON], answers[store, POST])
    return findings


def _note(
    answers: dict[tuple[str, str], list[Answer]], turn: int, store: str, way: str, answer: Answer
) -> None:
    answers.setdefault((store, way), []).append(answer)
    tell(f"http … round {turn + 1}, {store}, {way}: {answer['rate']:,.0f} /s")


def _compare(findings: Findings, store: str, python: list[Answer], post: list[Answer]) -> None:
    what = f"{store}, {AT_ONCE} at once"
    rates = []
    for who, answers in ((PYTHON, python), (POST, post)):
        rates.append(findings.add(Figure(PART, what, who, RATE, tuple(one["rate"] for one in answers))))
        for point in ("p50", "p99"):
            values = tuple(one[point] for one in answers)
            findings.add(Figure(PART, f"{what}, {point}", who, MILLISECONDS, values))
    times = findings.add(ratio(PART, what, rates[1], rates[0]))
    findings.targets.append(Target(f"POST /tasks on {store}, beside Python", times, at_least=AT_LEAST))


def _measured(way: str, where: str, number: int) -> Answer:
    if way == PYTHON:
        return run(PROGRAM, "direct", url=where, number=number, callers=AT_ONCE)
    with _free_port() as port, running(PROGRAM, "serve", url=where, port=port) as server:
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
