"""Processes: every measured run gets a new one, so that no run influences the next."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LIMIT_SECONDS = 120
READY = "ready"

Answer = dict[str, Any]
Program = str | tuple[str, ...]  # a module of benchmarks.runs, or the beginning of a command


class RunFailed(Exception):
    """A run failed; its figures are invalid."""


def run(program: Program, verb: str, *, tree: Path = ROOT, **options: Any) -> Answer:
    """Run the program of a tree, this one or one laid out elsewhere, and return its result."""
    with _started(program, verb, tree, options) as process:
        return _answer(process, f"{program} {verb}")


@contextmanager
def running(program: Program, verb: str, *, tree: Path = ROOT, **options: Any) -> Iterator["Running"]:
    """Start a process that runs until it is stopped; it is ready when the block begins."""
    with starting(program, verb, tree=tree, **options) as process:
        process.until_ready()
        yield process


@contextmanager
def starting(program: Program, verb: str, *, tree: Path = ROOT, **options: Any) -> Iterator["Running"]:
    """Start a process that runs until it is stopped; it may not be ready yet."""
    with _started(program, verb, tree, options) as process:
        yield Running(process, f"{program} {verb}")


def environment(tree: Path) -> dict[str, str]:
    """Return what makes a process import windlass from a tree, whatever is installed."""
    return os.environ | {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}


def command(tree: Path) -> list[str]:
    """Return the beginning of a command line that runs `windlass` of a tree."""
    module, _, function = tomllib.loads((tree / "pyproject.toml").read_text())["project"]["scripts"][
        "windlass"
    ].partition(":")
    return [sys.executable, "-c", f"import sys; from {module} import {function}; sys.exit({function}())"]


class Running:
    """A running process."""

    def __init__(self, process: "subprocess.Popen[str]", name: str) -> None:
        self._process = process
        self._name = name
        self.pid = process.pid

    def until_ready(self) -> None:
        """Wait until it says that it is ready."""
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != READY:
            raise RunFailed(f"{self._name} did not get ready:\n{self._process.communicate()[1]}")

    def line(self) -> Answer:
        """Return the next line that it prints, of JSON."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RunFailed(f"{self._name} ended too soon:\n{self._process.communicate()[1]}")
        answer: Answer = json.loads(line)
        return answer

    def say(self, word: str) -> None:
        """Send it a line on its standard input."""
        assert self._process.stdin is not None
        try:
            print(word, file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise RunFailed(f"{self._name} ended too soon:\n{self._process.communicate()[1]}") from None

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def answer(self) -> Answer:
        """Wait for its end and return its result."""
        return _answer(self._process, self._name)


@contextmanager
def _started(
    program: Program, verb: str, tree: Path, options: dict[str, Any]
) -> Iterator["subprocess.Popen[str]"]:
    begin = (sys.executable, "-m", f"benchmarks.runs.{program}") if isinstance(program, str) else program
    command = [*begin, verb, json.dumps(options)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, cwd=tree, env=environment(tree), stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def _answer(process: "subprocess.Popen[str]", name: str) -> Answer:
    try:
        out, err = process.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise RunFailed(f"{name} took longer than {LIMIT_SECONDS} s") from None
    if process.returncode != 0:
        raise RunFailed(f"{name} failed:\n{err}")
    answer: Answer = json.loads(out.strip().splitlines()[-1])
    return answer
