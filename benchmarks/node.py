"""Peers that are Node programs: installed from their lock files into our virtual environment on first use."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import ROOT, RunFailed

# Not `npm ci`, which wants the optional packages of every platform in the lock file.
INSTALL = ("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund")


def is_able() -> bool:
    """Tell whether Node is installed."""
    return all(shutil.which(program) for program in ("node", "npm"))


@dataclass(frozen=True)
class NodePeer:
    """A package of npm, and the folder of `benchmarks/runs` with its side and its lock file."""

    package: str
    folder: str

    def program(self) -> tuple[str, ...]:
        """Return the command of its side, installing it if needed. Raises RunFailed if npm fails."""
        if not (self._home / "node_modules").exists():
            unfinished = self._home.with_name(f"{self._home.name}-{os.getpid()}")
            shutil.copytree(self._source, unfinished)
            done = subprocess.run(INSTALL, cwd=unfinished, capture_output=True, text=True, check=False)
            if done.returncode:
                shutil.rmtree(unfinished)
                raise RunFailed(f"npm cannot install {self.package}; --without it goes on:\n{done.stderr}")
            shutil.rmtree(self._home, ignore_errors=True)
            unfinished.rename(self._home)
        source = (self._source / "main.mjs").read_bytes()
        side = self._home / f"{hashlib.sha256(source).hexdigest()[:12]}.mjs"  # other checkouts have their own
        side.write_bytes(source)
        return "node", str(side)

    def version(self) -> str:
        """Return its version and that of Node."""
        node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
        package = self._home / "node_modules" / self.package / "package.json"
        return f"{json.loads(package.read_text())['version']}, node {node.strip()}"

    @property
    def _source(self) -> Path:
        return ROOT / "benchmarks" / "runs" / self.folder

    @property
    def _home(self) -> Path:
        lock = (self._source / "package-lock.json").read_bytes()
        return Path(sys.prefix) / f"{self.package}-{hashlib.sha256(lock).hexdigest()[:12]}"


GRAPHILE = NodePeer("graphile-worker", "on_graphile")
BULLMQ = NodePeer("bullmq", "on_bullmq")
