"""Settings: precedence of their sources, errors and warnings."""

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass import InvalidOption
from windlass.config import Settings, read_settings


@pytest.fixture(autouse=True)
def here(folder: Path) -> Path:
    return folder


def test_without_sources_every_setting_has_its_default() -> None:
    assert Settings.load(env={}) == Settings()


@given(
    file=st.none() | st.integers(1, 99),
    env=st.none() | st.integers(1, 99),
    flag=st.none() | st.integers(1, 99),
)
def test_flags_win_over_the_environment_and_that_over_the_file(
    tmp_path_factory: pytest.TempPathFactory, file: int | None, env: int | None, flag: int | None
) -> None:
    path = tmp_path_factory.mktemp("settings") / "mine.toml"
    path.write_text("" if file is None else f"slots = {file}")

    settings = Settings.load(path, {} if env is None else {"WINDLASS_SLOTS": str(env)}, {"slots": flag})

    assert settings.slots == next((value for value in (flag, env, file) if value is not None), None)


def test_every_key_can_be_set_in_a_file() -> None:
    Path("windlass.toml").write_text(
        """
        store = "sqlite:///a.db"
        app = "shop:app"
        queues = ["mail", "default"]
        slots = 4
        reserve = { low = 2 }
        processes = 2
        lease = "1m"
        heartbeat = 5
        grace = 0.5
        poll = "250ms"
        keeper = false
        name = "w1"
        tracing = "link"
        log_level = "debug"
        log_format = "json"
        """
    )

    assert Settings.load(env={}) == Settings(
        store="sqlite:///a.db",
        app="shop:app",
        queues=("mail", "default"),
        slots=4,
        reserve={"low": 2},
        processes=2,
        lease=timedelta(minutes=1),
        heartbeat=timedelta(seconds=5),
        grace=timedelta(seconds=0.5),
        poll=timedelta(seconds=0.25),
        keeper=False,
        name="w1",
        tracing="link",
        log_level="debug",
        log_format="json",
    )


def test_every_key_can_be_set_in_the_environment() -> None:
    env = {
        "WINDLASS_STORE": "sqlite:///a.db",
        "WINDLASS_QUEUES": "mail, default",
        "WINDLASS_RESERVE": "low=2, high=1",
        "WINDLASS_LEASE": "60",
        "WINDLASS_KEEPER": "no",
        "WINDLASS_LOG_LEVEL": "DEBUG",
        "WINDLASS_NAME": "",
    }

    settings = Settings.load(env=env)

    assert settings == Settings(
        store="sqlite:///a.db",
        queues=("mail", "default"),
        reserve={"low": 2, "high": 1},
        lease=timedelta(minutes=1),
        keeper=False,
        log_level="debug",
    )


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_store_is_an_error_wherever_it_is_set(text: str) -> None:
    """As in WINDLASS_STORE=${DATABASE_URL}: the default would be another store than was meant."""
    Path("windlass.toml").write_text(f'store = "{text}"')

    reading = read_settings(env={"WINDLASS_STORE": text}, flags={"store": text})

    assert [one.partition(": ")[2] for one in reading.errors] == [
        "store is empty; leave it out or give it a value"
    ] * 3
    assert [one.partition(":")[0] for one in reading.errors][1:] == ["WINDLASS_STORE", "--store"]


def test_pyproject_is_read_without_a_windlass_toml() -> None:
    Path("pyproject.toml").write_text('[tool.windlass]\napp = "shop:app"')
    assert Settings.load(env={}).app == "shop:app"

    Path("windlass.toml").write_text('app = "other:app"')
    reading = read_settings(env={})
    assert reading.settings.app == "other:app"
    assert "pyproject.toml" in reading.warnings[0]


@pytest.mark.parametrize("text", ["", "tool = 3", "[tool]\nwindlass = 3", '[project]\nname = "x"'])
def test_a_pyproject_without_our_table_is_ignored(text: str) -> None:
    Path("pyproject.toml").write_text(text)

    assert read_settings(env={}).settings == Settings()


def test_the_environment_can_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "prod.toml").write_text("slots = 7")

    assert Settings.load(env={"WINDLASS_CONFIG": str(tmp_path / "prod.toml")}).slots == 7


def test_an_unknown_key_is_an_error_that_names_the_closest() -> None:
    Path("windlass.toml").write_text('log-level = "debug"\nslots = 3')

    reading = read_settings(env={})

    assert reading.settings.slots == 3
    assert "did you mean 'log_level'?" in reading.errors[0]
    with pytest.raises(InvalidOption, match="log_level"):
        Settings.load(env={})


def test_an_unknown_variable_is_a_warning() -> None:
    reading = read_settings(env={"WINDLASS_SLOT": "3"})

    assert not reading.errors
    assert "did you mean 'slots'?" in reading.warnings[0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("slots = true", "whole number"),
        ("reserve = 2", "a number for each level"),
        ("reserve = { low = 'x' }", "whole number"),
        ("slots = 'many'", "whole number"),
        ("lease = 'soon'", "lease"),
        ("lease = -1", "from 0 to ten years"),
        ("keeper = 'maybe'", "true or false"),
        ("queues = 3", "list of names"),
        ("queues = ['a b']", "not a valid name"),
        ("log_level = 'loud'", "one of debug"),
        ("store = 3", "text"),
        ("slots = ", "not valid TOML"),
        ("slots = 1\nslots = 2", "not valid TOML"),
    ],
)
def test_a_wrong_value_is_an_error(line: str, message: str) -> None:
    Path("windlass.toml").write_text(line)

    (error,) = read_settings(env={}).errors

    assert "windlass.toml" in error
    assert message in error


def test_all_errors_are_reported_together() -> None:
    with pytest.raises(InvalidOption, match=r"WINDLASS_LEASE.*WINDLASS_SLOTS.*--grace"):
        Settings.load(env={"WINDLASS_SLOTS": "x", "WINDLASS_LEASE": "y"}, flags={"grace": "z"})


def test_a_missing_file_is_an_error() -> None:
    with pytest.raises(InvalidOption, match="cannot be read"):
        Settings.load(Path("missing.toml"), env={})


def test_a_file_that_is_not_text_is_an_error() -> None:
    Path("windlass.toml").write_bytes(b"\xff\xfe")

    assert "not valid TOML" in read_settings(env={}).errors[0]


def test_networks_are_read_from_text_and_lists(tmp_path: Path) -> None:
    file = tmp_path / "windlass.toml"
    file.write_text('allow_addresses = ["10.0.0.0/8", "::1"]')

    assert [str(one) for one in Settings.load(file, env={}).allow_addresses] == ["10.0.0.0/8", "::1/128"]
    told = Settings.load(file, env={"WINDLASS_ALLOW_ADDRESSES": "127.0.0.1, fd00::/8"})
    assert [str(one) for one in told.allow_addresses] == ["127.0.0.1/32", "fd00::/8"]


@pytest.mark.parametrize("wrong", ["7", '"localhost"', "[7]", '["10.0.0.1/8"]'])
def test_what_is_no_network_is_refused(tmp_path: Path, wrong: str) -> None:
    file = tmp_path / "windlass.toml"
    file.write_text(f"allow_addresses = {wrong}")

    with pytest.raises(InvalidOption, match="allow_addresses"):
        Settings.load(file, env={})


def test_patterns_come_as_a_list_or_one_per_line() -> None:
    Path("windlass.toml").write_text("redact = ['\\b\\d{13,19}\\b', 'sk_\\w+']")

    assert Settings.load(env={}).redact == (r"\b\d{13,19}\b", r"sk_\w+")
    assert Settings.load(env={"WINDLASS_REDACT": "a{1,3}b\nc,d"}).redact == ("a{1,3}b", "c,d")
    for value, why in (("(a+)+$", "unbounded time"), ("(", "not a regular expression")):
        with pytest.raises(InvalidOption, match=f"WINDLASS_REDACT: .*{why}"):
            Settings.load(env={"WINDLASS_REDACT": value})
    Path("windlass.toml").write_text("redact = 7")
    with pytest.raises(InvalidOption, match="must be a list of regular expressions"):
        Settings.load(env={})
