"""`make chaos`: which campaigns it counts as passed."""

from pathlib import Path
from types import ModuleType

import pytest

from tests.shells.scripts import imported


@pytest.fixture
def chaos(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    module = imported("chaos", monkeypatch)
    monkeypatch.setattr(module, "LOGS", tmp_path)
    return module


@pytest.mark.parametrize(
    ("body", "held"), [("pass", True), ("assert False", False), ("pytest.skip('no server')", False)]
)
def test_a_campaign_holds_only_if_it_ran(chaos: ModuleType, tmp_path: Path, body: str, held: bool) -> None:
    campaign = tmp_path / "test_campaign.py"
    campaign.write_text(f"import pytest\n\ndef test_storm():\n    {body}\n")
    assert chaos.is_good(str(campaign), {}, "[1 of 1]") is held
