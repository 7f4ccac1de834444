"""Empty schemas to keep a store in: made once, emptied and used again, for making one takes long."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

import psycopg

from windlass._store.clock import Clock
from windlass._stores.postgres import PostgresStore

# For a few rows much quicker than TRUNCATE, which makes new files.
EMPTY = """
DO $$
DECLARE name text;
BEGIN
    FOR name IN
        SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE
            nspname = '{schema}' AND relkind IN ('r', 'p') AND NOT relispartition
            AND relname <> 'schema_version'
    LOOP
        EXECUTE format('DELETE FROM {schema}.%I', name);
    END LOOP;
END $$
"""


class Schemas:
    """The schemas of one database, lent to tests."""

    def __init__(self, url: str, *, direct: str | None = None, prefix: str = "test") -> None:
        self._url = url
        self._prefix = prefix
        self._made = 0
        self._free: list[str] = []
        self._connection = psycopg.connect(direct or url, autocommit=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @contextmanager
    def lent(self) -> Iterator[Callable[[Clock | None], PostgresStore]]:
        """As many stores as asked for, each in a schema that is empty; all are taken back at the end.

        Who asks for another and has closed the one before may get its schema again.
        """
        lent: dict[str, PostgresStore] = {}

        def fresh(clock: Clock | None = None) -> PostgresStore:
            self._free += [schema for schema in [*lent] if lent[schema]._closed and lent.pop(schema)]
            schema = self._free.pop() if self._free else self._new()
            self._connection.execute(EMPTY.format(schema=schema))
            lent[schema] = PostgresStore.from_url(f"{self._url}?schema={schema}", clock=clock)
            return lent[schema]

        try:
            yield fresh
        finally:
            self._free += lent

    def _new(self) -> str:
        self._made += 1
        return f"{self._prefix}_{self._made}"
