"""Settings of the command line: from a file, the environment and flags; the later source wins.

The file is `windlass.toml`, or `[tool.windlass]` in `pyproject.toml`, in the current folder. The environment
variable of a key is `WINDLASS_` and the key in capitals. An empty variable is ignored; but WINDLASS_STORE, if
empty, is an error, as the default would be another store than was meant.
"""

import getpass
import os
import tomllib
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import fields

from ._encryption.keys import Keyring
from ._model.brief import Brief, Secret
from ._policy.addresses import Network, parse_networks
from ._policy.input.options import checked_name, parse_duration
from ._policy.input.quote import quoted, suggestion
from ._policy.input.trace import RELATIONS
from ._policy.quota import parse_size
from ._policy.secrets.patterns import checked_patterns
from .alerts import checked_secret
from .errors import InvalidOption

Environment: TypeAlias = Mapping[str, str]
Flags: TypeAlias = Mapping[str, Any]

PREFIX = "WINDLASS_"
FILE_VARIABLE = f"{PREFIX}CONFIG"
KEY_VARIABLE = f"{PREFIX}KEY"
METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client's
KEYS_VARIABLE = f"{PREFIX}ENCRYPTION_KEYS"
_STORE = f"{PREFIX}STORE"
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
DEFAULT_LOG_LEVEL, DEFAULT_LOG_FORMAT = "info", "text"
_HANDLERS = "handlers_"
_CHOICES = {"log_level": LOG_LEVELS, "log_format": LOG_FORMATS, "tracing": RELATIONS}


def user_name() -> str:
    """Return the name of the user whom this process runs as."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container whose user id has no name
        return str(os.getuid())


class Patterns(tuple[str, ...]):
    """Redaction patterns. One in the environment stands on a line of its own, as it may contain commas."""

    __slots__ = ()


class Size(int):
    """A number of bytes; as text also 500MB or 2GiB."""

    __slots__ = ()


class Settings(Brief, Struct, frozen=True, kw_only=True):
    """The settings in force. None: as the app has it, or else the default."""

    store: str | None = None
    app: str | None = None
    imports: tuple[str, ...] = ()  # modules to import with the app, which declare its task types
    queues: tuple[str, ...] = ()
    all_queues: bool | None = None
    slots: int | None = None
    reserve: dict[str, int] | None = None
    processes: int | None = None
    workers: int | None = None  # worker processes, supervised by `windlass worker`
    lease: timedelta | None = None
    heartbeat: timedelta | None = None
    grace: timedelta | None = None
    poll: timedelta | None = None
    keeper: bool | None = None
    owner: bool | None = None  # start a process that owns the store or stands by, if it needs one
    owner_folder: str | None = None  # of its copy of the store
    name: str | None = None
    tracing: str | None = None
    log_level: str | None = None
    log_format: str | None = None
    webhook_secret: Secret | None = None
    redact: Patterns = Patterns()  # regular expressions whose matches are masked
    archive: str | None = None  # directory of history
    encryption_key_file: str | None = None  # the keys that secret fields are encrypted with
    allow_addresses: tuple[Network, ...] = ()  # that webhooks may reach though they are not public
    metrics: tuple[str, int] | None = None  # host and port where a worker serves them
    health: tuple[str, int] | None = None  # host and port where a worker answers probes
    health_file: str | None = None  # that exists while a worker is ready
    max_tasks: int | None = None  # after which a worker is recycled
    max_memory: Size | None = None
    all_handlers: bool | None = None  # declare every ready-made handler that can be
    handlers: dict[str, dict[str, Any]] = {}  # settings of ready-made handlers, by their names

    @classmethod
    def load(
        cls, file: Path | None = None, env: Environment | None = None, flags: Flags | None = None
    ) -> "Settings":
        """Read the settings from all sources; raises InvalidOption with everything that is wrong."""
        found = read_settings(file, env, flags)
        if found.errors:
            raise InvalidOption("; ".join(found.errors))
        return found.settings


class FoundSettings(Struct, frozen=True):
    """The settings that are valid, and the errors and warnings about the others."""

    settings: Settings
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def read_settings(
    file: Path | None = None, env: Environment | None = None, flags: Flags | None = None
) -> FoundSettings:
    """Read every source, leaving out what is wrong. A flag of None is ignored."""
    reader = _Reader()
    environment = os.environ if env is None else env
    if path := file or environment.get(FILE_VARIABLE):
        reader.take_file(Path(path))
    else:
        reader.take_folder(Path())
    reader.take_environment(environment)
    for key, value in (flags or {}).items():
        if value is not None:
            reader.take(key, value, f"--{key.replace('_', '-')}")
    return FoundSettings(Settings(**reader.values), tuple(reader.errors), tuple(reader.warnings))


class _Reader:
    """Collects settings from one source after another."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.errors: list[str] = []
        self.warnings: list[str] = []

    def take_folder(self, folder: Path) -> None:
        own, shared = folder / "windlass.toml", folder / "pyproject.toml"
        for path in [path for path in (own, shared) if path.is_file()][:1]:
            self.take_file(path)
        if own.is_file() and shared.is_file() and self._table(shared) is not None:
            self.warnings.append(
                "[tool.windlass] in pyproject.toml is ignored, because there is a windlass.toml"
            )

    def take_file(self, path: Path) -> None:
        table = self._table(path) if path.name == "pyproject.toml" else self._document(path)
        if table is not None:
            self._take_table(table, str(path))

    def take_environment(self, environment: Environment) -> None:
        ours = {variable for variable in environment if variable.startswith(PREFIX)} - {
            FILE_VARIABLE,
            KEY_VARIABLE,
            KEYS_VARIABLE,
        }
        for variable in sorted(variable for variable in ours if environment[variable] or variable == _STORE):
            value, key = environment[variable], variable.removeprefix(PREFIX).lower()
            if key.startswith(_HANDLERS):
                self._take_handler_field(key.removeprefix(_HANDLERS), value)
            elif key in _FIELDS:
                self.take(key, value, variable)
            else:  # a warning only: it may belong to another program
                self.warnings.append(f"{variable} is not a setting of windlass{_hint(key)}")

    def _take_handler_field(self, key: str, value: str) -> None:
        """Take a field of a handler's settings: `email_smtp` is `smtp` in the table of `email`."""
        name, _, field = key.partition("_")
        tables = self.values.get("handlers", {})
        self.values["handlers"] = {**tables, name: {**tables.get(name, {}), field: value}}

    def take(self, key: str, value: object, source: str) -> None:
        try:
            self.values[key] = _FIELDS[key](value, key)
        except InvalidOption as error:
            self.errors.append(f"{source}: {error}")

    def _take_table(self, table: Mapping[str, Any], source: str) -> None:
        for key, value in table.items():
            if key in _FIELDS:
                self.take(key, value, f"{source}, {key}")
            else:
                self.errors.append(f"{source}: there is no setting {quoted(key)}{_hint(key)}")

    def _table(self, path: Path) -> dict[str, Any] | None:
        tool = (self._document(path) or {}).get("tool")
        table = tool.get("windlass") if isinstance(tool, dict) else None
        return table if isinstance(table, dict) else None

    def _document(self, path: Path) -> dict[str, Any] | None:
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            self.errors.append(f"{path}: cannot be read: {error.strerror}")
        except ValueError as error:
            self.errors.append(f"{path}: not valid TOML: {error}")
        return None


def _hint(key: str) -> str:
    return suggestion(key.lower().replace("-", "_"), _FIELDS, f"the settings are {', '.join(_FIELDS)}")


def _text(value: object, key: str) -> str:
    if not isinstance(value, str):
        raise InvalidOption(f"{key} must be text, not {quoted(value)}")
    if not value.strip():
        raise InvalidOption(f"{key} is empty; leave it out or give it a value")
    return value


def _address(value: object, key: str) -> tuple[str, int]:
    """Parse PORT, HOST:PORT or [HOST]:PORT; without a host, listen on 127.0.0.1 only."""
    host, _, port = str(value).rpartition(":")
    if isinstance(value, bool) or not _is_number(port) or int(port) > 65535:
        raise InvalidOption(f"{key} must be PORT or HOST:PORT, not {quoted(value)}")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def _whole(value: Any, key: str) -> int:
    found = int(value) if _is_number(value) else value
    if isinstance(found, bool) or not isinstance(found, int):
        raise InvalidOption(f"{key} must be a whole number, not {quoted(value)}")
    return found


def _positive(number: int, key: str) -> int:
    if number < 1:
        raise InvalidOption(f"{key} must be at least 1, not {number}")
    return number


def _switch(value: object, key: str) -> bool:
    spelled = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    found = spelled.get(value.lower()) if isinstance(value, str) else value
    if isinstance(found, bool):
        return found
    raise InvalidOption(f"{key} must be true or false, not {quoted(value)}")


def _names(value: object, key: str) -> tuple[str, ...]:
    parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise InvalidOption(f"{key} must be a list of names, not {quoted(value)}")
    return tuple(checked_name(part, key.removesuffix("s")) for part in parts)


def _networks(value: object, key: str) -> tuple[Network, ...]:
    parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise InvalidOption(f"{key} must be a list of networks, not {quoted(value)}")
    return parse_networks(parts)


def _patterns(value: object, key: str) -> Patterns:
    parts = value.splitlines() if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise InvalidOption(f"{key} must be a list of regular expressions, not {quoted(value)}")
    checked_patterns(parts)
    return Patterns(parts)


def _duration(value: Any, key: str) -> timedelta:
    return parse_duration(int(value) if _is_number(value) else value, key)


def _numbers(value: Any, key: str) -> dict[str, int]:
    """Parse a number for each name, from a table or from text such as low=2,high=1."""
    table = value
    if isinstance(value, str) and all("=" in part for part in value.split(",")):
        parts = [part.partition("=") for part in value.split(",")]
        table = {one.strip(): number.strip() for one, _, number in parts}
    if not isinstance(table, Mapping):
        raise InvalidOption(f"{key} must be a number for each level, as in low=2, not {quoted(value)}")
    return {str(one): _whole(number, key) for one, number in table.items()}


def _tables(value: Any, key: str) -> dict[str, dict[str, Any]]:
    if not isinstance(value, Mapping) or not all(isinstance(table, Mapping) for table in value.values()):
        raise InvalidOption(f"{key} must have a table for each handler, as in [handlers.webhooks]")
    return {name: dict(table) for name, table in value.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10


def _choice(value: object, key: str) -> str:
    choices = _CHOICES[key]
    if not isinstance(value, str) or value.lower() not in choices:
        raise InvalidOption(f"{key} must be one of {', '.join(choices)}, not {quoted(value)}")
    return value.lower()


_PARSERS: dict[Any, Callable[[Any, str], Any]] = {
    str | None: _text,
    tuple[str, ...]: _names,
    Patterns: _patterns,
    int | None: _whole,
    dict[str, int] | None: _numbers,
    timedelta | None: _duration,
    bool | None: _switch,
    Size | None: lambda value, key: Size(_positive(parse_size(value), key)),
    Secret | None: lambda value, _: checked_secret(value),
    tuple[str, int] | None: _address,
    tuple[Network, ...]: _networks,
    dict[str, dict[str, Any]]: _tables,
}
_FIELDS = {
    field.name: _choice if field.name in _CHOICES else _PARSERS[field.type] for field in fields(Settings)
} | {name: lambda value, key: _positive(_whole(value, key), key) for name in ("workers", "max_tasks")}


def encryption_keys(file: str | None = None) -> Keyring | None:
    """Return the keys of WINDLASS_ENCRYPTION_KEYS, or of a file [default: WINDLASS_ENCRYPTION_KEY_FILE].

    None if there are none. Raises InvalidOption.
    """
    return Keyring.found(
        os.environ.get(KEYS_VARIABLE), file or os.environ.get(f"{PREFIX}ENCRYPTION_KEY_FILE")
    )


def api_key() -> str | None:
    """Return the API key for a store over HTTP, from WINDLASS_KEY: arguments would show in process lists."""
    return os.environ.get(KEY_VARIABLE) or None


def metrics_directory() -> Path:
    """Return the directory in which prometheus_client keeps the metrics of several processes."""
    return Path(os.environ[METRICS_VARIABLE])


def use_metrics_directory(directory: Path) -> None:
    """Let prometheus_client keep metrics in this directory."""
    os.environ[METRICS_VARIABLE] = str(directory)


def service_manager() -> tuple[str, float | None]:
    """Return systemd's notification socket, "" if there is none, and the seconds of its watchdog."""
    address, watched = os.environ.get("NOTIFY_SOCKET", ""), os.environ.get("WATCHDOG_PID")
    given = os.environ.get("WATCHDOG_USEC", "") if watched in (None, str(os.getpid())) else ""
    return address, int(given) / 1e6 if given.isdecimal() and int(given) else None
