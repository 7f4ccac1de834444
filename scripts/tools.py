"""Tools of scripts, in environments of their own: requirements/NAME.lock is installed into .venvs/NAME."""

import subprocess
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def installed(name: str) -> Path:
    """Install what the lock file names, unless it is there; return the folder of its programs."""
    folder, lock = ROOT / ".venvs" / name, ROOT / "requirements" / f"{name}.lock"
    stamp = folder / ".ready"
    if not stamp.exists() or stamp.read_bytes() != lock.read_bytes():
        say("install", lock.relative_to(ROOT))
        venv.create(folder, clear=True, with_pip=True)
        pip = [folder / "bin/python", "-m", "pip", "install", "-qq", "--no-deps", "--require-hashes", "-r"]
        subprocess.run([*pip, lock], check=True)
        stamp.write_bytes(lock.read_bytes())
    return folder / "bin"


def say(what: str, text: object) -> None:
    print(f"  {what:<10} {text}", flush=True)
