"""The password in a store's URL is never shown, however the URL is written."""

import pytest

from tests.shells.cli.conftest import Run
from windlass._stores import store_name

SECRET = "hunter2"
SPELLINGS = (
    f"postgresql://u:{SECRET}@127.0.0.1:1/db",
    f"postgres://u:{SECRET}@127.0.0.1:1/db",
    f"POSTGRESQL://u:{SECRET}@127.0.0.1:1/db",
    f"postgresql+asyncpg://u:{SECRET}@127.0.0.1:1/db",
    f"postgresql://127.0.0.1:1/db?user=u&password={SECRET}",
    f"postgresql://127.0.0.1:1/db?password=a@{SECRET}",
    f"postgresql://127.0.0.1:1/db?sslpassword={SECRET}",
    f"postgresql://127.0.0.1:1/db?listen=postgresql://u:{SECRET}@127.0.0.1:1/db",
    f"postgresql://u:pw@127.0.0.1:1/db?schema={SECRET}@",
    f"postgresql:/u:{SECRET}@127.0.0.1:1/db",
    f"postgresql:u:{SECRET}@127.0.0.1:1/db",
    f"host=127.0.0.1 port=1 user=u password={SECRET}",
    f"host=127.0.0.1 password='{SECRET}'",
    f"postgresql://u:a/{SECRET}@127.0.0.1:1/db",
    f"postgresql://u:{SECRET}/a@127.0.0.1:1/db",
    f"postgresql://u:a#{SECRET}@127.0.0.1:1/db",
    f"postgresql://u:{SECRET}#a@127.0.0.1:1/db",
    f"postgresql://u:a?{SECRET}@127.0.0.1:1/db",
    f"postgresql://u:{SECRET}?a@127.0.0.1:1/db",
    f"postgresql://u:a@{SECRET}@127.0.0.1:1/db",
    f"postgresql://u:{SECRET}@[::1/db",
    f"postgresql://u:{SECRET}@127.0.0.1:port/db",
    f"postgresql://u:{SECRET}",
    f" postgresql://u:{SECRET}@127.0.0.1:1/db",
    f"http://u:{SECRET}@127.0.0.1:1",
    f"http://127.0.0.1:1?key={SECRET}",
    f"http://127.0.0.1:1#{SECRET}@",
    f"https://u:{SECRET}@[::1",
    f"redis://:{SECRET}@127.0.0.1",
    f"mysql://u:{SECRET}@127.0.0.1/db",
    f"{SECRET}@127.0.0.1/db",
)
COMMANDS = (
    ("tasks", "list"),
    ("check",),
    ("migrate",),
    ("enqueue", "t"),
    ("keys", "list"),
    ("keeper",),
    ("serve", "--port", "1"),
    ("up", "--port", "1"),
    ("export",),
    ("alerts", "test", "x"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_shows_the_password(run: Run, command: tuple[str, ...]) -> None:
    for url in SPELLINGS:
        for how in (("--store", url), ("--store", url, "--debug"), ("--store", url, "--json")):
            ran = run(*command, *how)
            assert ran.code != 0, url
            assert SECRET not in ran.out + ran.err, (url, ran.out + ran.err)


def test_no_command_shows_the_password_of_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in SPELLINGS:
        monkeypatch.setenv("WINDLASS_STORE", url)
        ran = run("queues", "list")
        assert SECRET not in ran.out + ran.err, (url, ran.out + ran.err)


@pytest.mark.parametrize("url", SPELLINGS)
def test_the_name_of_a_store_has_no_password(url: str) -> None:
    """As in the lines that a server or worker logs once it has reached its store."""
    assert SECRET not in store_name(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:pw@db.internal:5432/shop", "postgresql://db.internal:5432/shop"),
        ("postgresql://a:1,b:2/shop?target=any", "postgresql://a:1,b:2/shop"),
        ("sqllite:///shop.db", "sqllite:///shop.db"),
        ("http://127.0.0.1:1", "http://127.0.0.1:1"),
    ],
)
def test_the_place_is_shown(url: str, shown: str) -> None:
    assert store_name(url) == shown
