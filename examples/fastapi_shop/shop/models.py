"""What the shop keeps."""

from datetime import datetime
from decimal import Decimal

from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import DateTime, Numeric


class Model(DeclarativeBase):
    """A row; money is exact, and every instant has a time zone."""

    type_annotation_map = {datetime: DateTime(timezone=True), Decimal: Numeric(10, 2)}  # noqa: RUF012 - SQLAlchemy's


class Product(Model):
    """What a merchant sells."""

    __tablename__ = "products"

    name: Mapped[str] = mapped_column(primary_key=True)
    price: Mapped[Decimal]
    stock: Mapped[int]


class Order(Model):
    """What a customer has ordered."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    merchant: Mapped[str]
    product: Mapped[str] = mapped_column(ForeignKey(Product.name))
    email: Mapped[str]
    total: Mapped[Decimal]
    paid_at: Mapped[datetime | None]


class Charge(Model):
    """What the bank has charged: its records, not ours."""

    __tablename__ = "charges"

    key: Mapped[str] = mapped_column(primary_key=True)
    order_id: Mapped[int]
    amount: Mapped[Decimal]
