"""Where owners keep their copies: privately, and where later ones find what killed ones have left."""

import tempfile
from pathlib import Path

import pytest

from windlass._cli.run.owner import owner_folder


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_owners_of_one_user_share_a_private_folder(tmp_path: Path) -> None:
    with owner_folder(None) as one, owner_folder(None) as other:
        assert one == other
        assert one.parent == tmp_path
        assert one.stat().st_mode & 0o077 == 0


def test_a_folder_that_others_can_enter_is_not_used() -> None:
    with owner_folder(None) as shared:
        shared.chmod(0o755)

    with owner_folder(None) as private:
        assert private != shared
        assert private.stat().st_mode & 0o077 == 0
