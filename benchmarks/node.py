"""graphile-worker, a Node program: installed from its lock file into our virtual environment on first use."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.processes import ROOT, RunFailed

SOURCE = ROOT / "benchmarks" / "runs" / "on_graphile"
INSTALL = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")


def is_able() -> bool:
    """Tell whether Node is installed."""
    return all(shutil.which(program) for program in ("node", "npm"))


def program() -> tuple[str, ...]:
    """Return the command of its side, installing it if needed. Raises RunFailed if npm fails."""
    home = _home()
    if not (home / "node_modules").exists():
        unfinished = home.with_name(f"{home.name}-{os.getpid()}")
        shutil.copytree(SOURCE, unfinished)
        done = subprocess.run(INSTALL, cwd=unfinished, capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(unfinished)
            raise RunFailed(f"npm cannot install graphile-worker; --without it goes on:\n{done.stderr}")
        shutil.rmtree(home, ignore_errors=True)
        unfinished.rename(home)
    shutil.copy(SOURCE / "main.mjs", home)
    return "node", str(home / "main.mjs")


def version() -> str:
    """Return its version and that of Node."""
    node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    package = _home() / "node_modules" / "graphile-worker" / "package.json"
    return f"{json.loads(package.read_text())['version']}, node {node}"


def _home() -> Path:
    lock = (SOURCE / "package-lock.json").read_bytes()
    return Path(sys.prefix) / f"graphile-{hashlib.sha256(lock).hexdigest()[:12]}"
