"""What the tests share: the shop's web application, its tables, and tasks that run when a test says so."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from shop.api import api
from shop.models import Model, Product
from shop.settings import DATABASE
from shop.tasks import app
from sqlalchemy import create_engine, make_url
from sqlalchemy.orm import Session

from windlass.testing.harness import Harness, NewHarness


@pytest.fixture
def database() -> Iterator[Session]:
    """New tables in the database of the tests, and a session to look at them."""
    engine = create_engine(make_url(DATABASE).set(drivername="postgresql+psycopg"))
    Model.metadata.drop_all(engine)
    Model.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(Product(name="rope", price=9.5, stock=10))
        session.add(Product(name="yacht", price=99000, stock=1))
    with Session(engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
        yield session
    engine.dispose()


@pytest.fixture
def tasks(windlass_harness: NewHarness) -> Harness:
    """Tasks are kept in memory, and no mail leaves the tests."""
    harness = windlass_harness(app)
    app.sync_operator.pause("email")
    return harness


@pytest.fixture
def http(database: Session, tasks: Harness) -> Iterator[TestClient]:  # noqa: ARG001 - for their effects
    """Requests to the shop."""
    with TestClient(api) as http:
        yield http
