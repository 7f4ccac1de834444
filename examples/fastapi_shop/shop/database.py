"""Connections to the database of the shop, which has the tasks as well."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from .settings import DATABASE

Sessions = async_sessionmaker[AsyncSession]


@asynccontextmanager
async def connected() -> AsyncIterator[Sessions]:
    """Open an engine for a block: one in the web server and one in each worker, as event loops share none."""
    engine = create_async_engine(make_url(DATABASE).set(drivername="postgresql+asyncpg"))
    try:
        yield async_sessionmaker(engine)
    finally:
        await engine.dispose()
