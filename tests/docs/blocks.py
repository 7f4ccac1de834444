"""The fenced blocks of a Markdown page, and running them as a reader would who types them in."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"

_FENCE = re.compile(
    r"(?:^<!-- not run: ([^\n]+) -->\n)?^```(\w+)[ ]?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
_SECONDS = 25


@dataclass(frozen=True)
class Block:
    """One block: its language, what else its fence says, its text, where it begins, and why it is not run."""

    language: str
    info: str
    text: str
    line: int
    reason: str


def blocks_of(page: Path) -> Iterator[Block]:
    """The blocks of a page, in order."""
    text = page.read_text()
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start(2)) + 1
        yield Block(found[2], found[3], found[4], line, found[1] or "")


class Reader:
    """Follows a page in an empty folder.

    `python NAME` and `toml NAME` write a file; plain `python` is run. `bash` is run; `bash exits=N` ends with
    that status, `bash another-terminal` goes on beside the rest. `text` is what the block before printed;
    … stands for anything in it. Other languages are only read: those of programs (`sh`, `py`) have a comment
    before them that says why they are not run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._printed = ""
        self._beside: list[subprocess.Popen[str]] = []
        folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")},
            "PATH": os.pathsep.join(folders),
            "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }

    def follow(self, page: Path) -> None:
        for block in blocks_of(page):
            self.take(block, f"{page.name}:{block.line}")

    def take(self, block: Block, where: str) -> None:
        match block.language, block.info:
            case (("python" | "toml"), name) if name:
                (self._folder / name).write_text(block.text)
            case "python", _:
                self._run([sys.executable, "-W", "error", "-c", block.text], 0, where)
            case "bash", "another-terminal":
                self._beside.append(self._start(block.text))
            case "bash", info:
                self._run(["bash", "-ec", block.text], int(info.removeprefix("exits=") or 0), where)
            case "text", _:
                assert matches(block.text, self._printed), f"{where}: it printed\n{self._printed}"

    def close(self) -> list[int]:
        """Press Ctrl-C in the other terminals; the statuses they end with."""
        for process in self._beside:
            process.send_signal(signal.SIGINT)
        try:
            return [process.wait(timeout=_SECONDS) for process in self._beside]
        finally:
            for process in self._beside:
                process.kill()

    def _run(self, command: list[str], status: int, where: str) -> None:
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        # The answer; without one, the error. Notes on the way are for the person who waits.
        self._printed = done.stdout or done.stderr[max(done.stderr.rfind("error["), 0) :]
        assert done.returncode == status, f"{where}: status {done.returncode}\n{done.stdout}{done.stderr}"

    def _start(self, text: str) -> "subprocess.Popen[str]":
        log = (self._folder / "another-terminal.log").open("w")
        with log:
            return subprocess.Popen(
                ["bash", "-c", f"exec {text.strip()}"],
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=log,
                text=True,
            )


def matches(expected: str, printed: str) -> bool:
    """Whether it printed this, line by line; … stands for anything within a line."""
    wanted, got = expected.rstrip("\n").split("\n"), printed.rstrip("\n").split("\n")
    return len(wanted) == len(got) and all(map(_fits, wanted, got))


def _fits(wanted: str, got: str) -> bool:
    pattern = ".*".join(re.escape(part.strip()) for part in wanted.split("…"))
    return re.fullmatch(pattern, got.strip()) is not None
