"""`make chaos`: which campaigns it counts as passed."""

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/chaos"


@pytest.fixture
def chaos(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    spec = importlib.util.spec_from_loader("chaos", SourceFileLoader("chaos", str(SCRIPT)))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    assert spec.loader is not None
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "LOGS", tmp_path)
    return module


@pytest.mark.parametrize(
    ("body", "held"), [("pass", True), ("assert False", False), ("pytest.skip('no server')", False)]
)
def test_a_campaign_holds_only_if_it_ran(chaos: ModuleType, tmp_path: Path, body: str, held: bool) -> None:
    campaign = tmp_path / "test_campaign.py"
    campaign.write_text(f"import pytest\n\ndef test_storm():\n    {body}\n")
    assert chaos.is_good(str(campaign), {}, "[1 of 1]") is held
