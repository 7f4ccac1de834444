"""`windlass encryption`, and the settings that name a key file."""

import re
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest

from windlass._encryption.keys import Keyring

from .conftest import Run


def test_a_new_key_is_printed_and_not_stored(run: Run, folder: Path) -> None:
    before = {*folder.iterdir()}

    text = run("encryption", "new-key").out
    made = run("encryption", "new-key", "--id", "k1", "--json").row

    assert re.fullmatch(r"\d{4}-\d\d-\d\d:[A-Za-z0-9+/]{43}=\n", text)
    assert Keyring.parse(f"{text},{made['key']}").ids == (text[:10], "k1")
    assert made["id"] == "k1"
    assert {*folder.iterdir()} == before


def test_an_invalid_id_is_an_error(run: Run) -> None:
    refused = run("encryption", "new-key", "--id", "a:b")

    assert refused.code == 2
    assert "letters, digits" in refused.err


@pytest.fixture
def key_file(run: Run, folder: Path) -> Path:
    file = folder / "keys"
    file.write_text(run("encryption", "new-key", "--id", "k1").out)
    file.chmod(0o600)
    return file


def test_settings_name_a_key_file(run: Run, key_file: Path, folder: Path) -> None:
    (folder / "windlass.toml").write_text(f'encryption_key_file = "{key_file}"\n')
    run("migrate", "--app", "shop:app")
    made = run("enqueue", "shop.welcome", '{"user_id": 1, "card": "4111"}', "--app", "shop:app").out.strip()
    shown = run("tasks", "show", made, "--reveal", "--json").row
    (folder / "windlass.toml").unlink()
    hidden = run("tasks", "show", made, "--reveal", "--json").row

    assert shown["payload"]["card"] == "4111"
    assert hidden["payload"]["card"] == "[encrypted]"


def test_a_key_file_that_others_can_read_is_an_error(
    run: Run, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_file.chmod(0o644)
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEY_FILE", str(key_file))

    refused = run("tasks", "list", "--app", "shop:app")

    assert refused.code == 2
    assert "chmod 600" in refused.err


def test_keys_in_the_environment_are_not_an_unknown_setting(
    run: Run, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEYS", key_file.read_text().strip())
    run("migrate")

    assert "is not a setting" not in run("check").out


def test_keys_are_rotated_and_checked(
    run: Run, key_file: Path, enqueue: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = run("encryption", "rotate", "--store", "sqlite:///other.db")
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEY_FILE", str(key_file))
    made = enqueue("shop.welcome", '{"user_id": 1, "card": "4111"}', "--app", "shop:app")
    key_file.write_text(run("encryption", "new-key", "--id", "k2").out + key_file.read_text())

    before = run("check").out
    rotated = run("encryption", "rotate", "--why", "yearly")
    after = run("check").out
    again = run("encryption", "rotate", "--json").row
    key_file.write_text(key_file.read_text().splitlines()[0])
    shown = run("tasks", "show", made, "--reveal", "--json").row

    assert refused.code != 0
    assert "former key k1" in " ".join(before.split())
    assert rotated.out == "read 1 task; encrypted 1 task and 0 schedules with the first key\n"
    assert "encrypted with key k2" in " ".join(after.split())
    assert again == {"read": 1, "rewritten": 0, "locked": 0, "schedules": 0, "cursor": None}
    assert shown["payload"]["card"] == "4111"
    assert "yearly" in run("audit", "--json").out


@pytest.mark.system
def test_a_rotation_that_is_killed_can_be_run_again(
    run: Run, start: Callable[..., Popen[str]], key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEY_FILE", str(key_file))
    lines = "\n".join(f'{{"user_id": {number}, "card": "4111"}}' for number in range(1_600))
    run("enqueue", "shop.welcome", "--stdin", "--app", "shop:app", stdin=lines)
    key_file.write_text(run("encryption", "new-key", "--id", "k2").out + key_file.read_text())

    process = start("encryption", "rotate")
    first = process.stderr.readline()
    process.kill()
    process.wait()
    done = run("encryption", "rotate", "--json").row

    assert first.startswith("read 500 tasks; to go on: --after ")
    assert done["read"] == 1_600
    assert 0 < done["rewritten"] < 1_600
    key_file.write_text(key_file.read_text().splitlines()[0])
    cards = {
        one["payload"]["card"] for one in run("tasks", "list", "--limit", "1000", "--reveal", "--json").rows
    }
    assert cards == {"4111"}
