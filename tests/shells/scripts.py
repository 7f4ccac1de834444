"""Import the scripts of the repository, which have no suffix, to test their parts."""

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


def imported(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import a script anew; it leaves no bytecode beside it."""
    spec = importlib.util.spec_from_loader(name, SourceFileLoader(name, str(SCRIPTS / name)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(SCRIPTS))
    spec.loader.exec_module(module)
    return module
