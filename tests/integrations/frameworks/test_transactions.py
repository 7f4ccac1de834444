"""Endpoints enqueue in the SQLAlchemy transaction of their request: a task exists if the rows do."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any
from uuid import uuid4

import pytest
from fastapi import Depends, FastAPI, HTTPException
from fastapi.testclient import TestClient
from litestar import Litestar, post
from litestar.di import NamedDependency, Provide
from litestar.exceptions import HTTPException as LitestarException
from litestar.params import FromPath
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from tests.servers.postgres import Postgres
from windlass import App, Filter

INSERT = text("INSERT INTO public.orders (item) VALUES (:item) RETURNING id")
REFUSED = "anchor"


class Shop:
    """A task type and a table in one database."""

    def __init__(self, url: str) -> None:
        self.url = make_url(url)
        self.app = app = App(url)
        self.engine = create_engine(self.url.set(drivername="postgresql+psycopg"))
        with self.engine.begin() as connection:
            connection.execute(text("CREATE TABLE public.orders (id SERIAL, item TEXT)"))

        @app.task(name="ship")
        def ship(order_id: int) -> None: ...

        self.ship = ship
        self.at_responses: list[tuple[int, int]] = []

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[async_sessionmaker[AsyncSession]]:
        engine = create_async_engine(self.url.set(drivername="postgresql+asyncpg"))
        async with self.app:
            yield async_sessionmaker(engine)
        await engine.dispose()

    async def place(self, session: AsyncSession, item: str) -> str:
        order_id = (await session.execute(INSERT, {"item": item})).scalar_one()
        return (await self.ship.using(within=session).aenqueue(order_id=order_id)).id

    def watched(self, api: Any) -> Any:
        """Note what is found whenever an ASGI app begins a response."""

        async def watched(scope: Any, receive: Any, send: Any) -> None:
            async def noting(message: Any) -> None:
                if message["type"] == "http.response.start":
                    self.at_responses.append(await asyncio.to_thread(self.found))
                await send(message)

            await api(scope, receive, noting)

        return watched

    def found(self) -> tuple[int, int]:
        """Return how many orders and tasks there are, as another connection sees it."""
        with self.engine.connect() as connection:
            orders = connection.execute(text("SELECT count(*) FROM public.orders")).scalar_one()
        return orders, len([*self.app.sync_operator.every(Filter(types=("ship",)))])


@pytest.fixture
def shop(postgres_newest: Postgres) -> Iterator[Shop]:
    shop = Shop(postgres_newest.new_database(f"orders_{uuid4().hex}"))
    yield shop
    shop.engine.dispose()
    asyncio.run(shop.app.close())


def fastapi_async(shop: Shop) -> Any:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
        async with shop.opened() as sessions:
            api.state.sessions = sessions
            yield {}

    async def transaction() -> AsyncIterator[AsyncSession]:
        async with api.state.sessions.begin() as session:
            yield session

    api = FastAPI(lifespan=lifespan)

    @api.post("/orders/{item}", status_code=201)
    async def place(
        item: str, session: Annotated[AsyncSession, Depends(transaction, scope="function")]
    ) -> str:
        placed = await shop.place(session, item)
        if item == REFUSED:
            raise HTTPException(409)
        return placed

    return TestClient(shop.watched(api))


def fastapi_blocking(shop: Shop) -> Any:
    sessions = sessionmaker(shop.engine)

    def transaction() -> Iterator[Session]:
        with sessions.begin() as session:
            yield session

    api = FastAPI()

    @api.post("/orders/{item}", status_code=201)
    def place(item: str, session: Annotated[Session, Depends(transaction, scope="function")]) -> str:
        order_id = session.execute(INSERT, {"item": item}).scalar_one()
        placed = shop.ship.using(within=session).enqueue(order_id=order_id)
        if item == REFUSED:
            raise HTTPException(409)
        return placed.id

    return TestClient(shop.watched(api))


def litestar(shop: Shop) -> Any:
    opened: list[async_sessionmaker[AsyncSession]] = []

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        async with shop.opened() as sessions:
            opened.append(sessions)
            yield

    async def transaction() -> AsyncIterator[AsyncSession]:
        async with opened[0].begin() as session:
            yield session

    @post("/orders/{item:str}")
    async def place(item: FromPath[str], transaction: NamedDependency[AsyncSession]) -> str:
        placed = await shop.place(transaction, item)
        if item == REFUSED:
            raise LitestarException(status_code=409)
        return placed

    api = Litestar([place], lifespan=[lifespan], dependencies={"transaction": Provide(transaction)})
    return TestClient(shop.watched(api))


@pytest.mark.parametrize("served", [fastapi_async, fastapi_blocking, litestar])
def test_a_task_is_enqueued_if_the_request_commits(served: Any, shop: Shop) -> None:
    shop.app.setup()
    with served(shop) as http:
        assert http.post("/orders/rope").status_code == 201
        assert http.post(f"/orders/{REFUSED}").status_code == 409

    assert shop.found() == (1, 1)
    assert shop.at_responses == [(1, 1), (1, 1)]  # committed, or rolled back, before the client knows
