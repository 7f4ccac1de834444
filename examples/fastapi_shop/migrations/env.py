"""Runs the migrations: `alembic upgrade head`. The tables of windlass are among them, made by its own SQL."""

from typing import Any

from alembic import context
from shop.models import Model
from shop.settings import DATABASE
from sqlalchemy import NullPool, create_engine, make_url


def is_of_the_shop(_: Any, name: str | None, kind: str, reflected: bool, __: Any) -> bool:  # noqa: FBT001
    """Leave what others have made in the database out of `alembic revision --autogenerate`."""
    return not (kind == "table" and reflected and name not in Model.metadata.tables)


engine = create_engine(make_url(DATABASE).set(drivername="postgresql+psycopg"), poolclass=NullPool)
with engine.connect() as connection:
    context.configure(connection, target_metadata=Model.metadata, include_object=is_of_the_shop)
    with context.begin_transaction():
        context.run_migrations()
