"""Databases for runs: new ones on one private, durable Postgres server, dropped at the end."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import psycopg
from psycopg import sql

from benchmarks.processes import run
from benchmarks.sides import Side
from tests.servers.postgres import DURABLE, Postgres

SHOWN = ("server_version", "fsync", "synchronous_commit", "shared_buffers", "autovacuum")


class Databases:
    """The databases of a server: per side a template with empty tables, and disposable copies of it."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._made: set[str] = set()
        self._numbers = count()

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._server.pid

    @contextmanager
    def fresh(self, side: Side) -> Iterator[str]:
        """The URL of a database with the side's empty tables, dropped afterwards."""
        name = side.who.replace("-", "_")
        model, copy = f"model_{name}", f"run_{next(self._numbers)}"
        if model not in self._made:
            run(side.program, "prepare", url=self._server.new_database(model))
            self._made.add(model)
        with self._copied(model, copy) as url:
            yield url

    @contextmanager
    def copied(self, url: str) -> Iterator[str]:
        """The URL of a copy of a database without connections, dropped afterwards."""
        with self._copied(url.rpartition("/")[2], f"run_{next(self._numbers)}") as copy:
            yield copy

    @contextmanager
    def _copied(self, model: str, copy: str) -> Iterator[str]:
        names = {"copy": sql.Identifier(copy), "model": sql.Identifier(model)}
        self._say(sql.SQL("CREATE DATABASE {copy} TEMPLATE {model}").format(**names))
        yield self._server.url.rpartition("/")[0] + f"/{copy}"
        self._say(sql.SQL("DROP DATABASE {copy} WITH (FORCE)").format(**names))

    def quiesce(self, url: str) -> None:
        """Finish pending work before a run: analyse and checkpoint. The same for every side."""
        with closing(psycopg.connect(url, autocommit=True)) as connection:
            connection.execute("VACUUM (ANALYZE)")
            connection.execute("CHECKPOINT")

    def described(self) -> dict[str, str]:
        """Describe the server, for the head of the report."""
        wanted = ", ".join(f"current_setting('{name}')" for name in SHOWN)
        with closing(psycopg.connect(self._server.url)) as connection:
            row = connection.execute(f"SELECT {wanted}".encode()).fetchone() or SHOWN
        version, *settings = (f"{name} {value}" for name, value in zip(SHOWN, row, strict=True))
        return {"postgres": f"{version.partition(' ')[2]}; {', '.join(settings)}"}

    def _say(self, statement: sql.Composed) -> None:
        with closing(psycopg.connect(self._server.url, autocommit=True)) as connection:
            connection.execute(statement)


@contextmanager
def started(folder: Path, version: int | None) -> Iterator[Databases]:
    """Run a server for the duration of the block; `None` is the newest major version available."""
    with Postgres.start(folder, version=version, settings=DURABLE) as server:
        yield Databases(server)
