"""The tables of the shop."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0001", None


def upgrade() -> None:
    products = op.create_table(
        "products",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("price", sa.Numeric(10, 2), nullable=False),
        sa.Column("stock", sa.Integer, nullable=False),
    )
    op.create_table(
        "orders",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("merchant", sa.String, nullable=False),
        sa.Column("product", sa.String, sa.ForeignKey("products.name"), nullable=False),
        sa.Column("email", sa.String, nullable=False),
        sa.Column("total", sa.Numeric(10, 2), nullable=False),
        sa.Column("paid_at", sa.DateTime(timezone=True)),
    )
    op.create_table(
        "charges",
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("order_id", sa.Integer, nullable=False),
        sa.Column("amount", sa.Numeric(10, 2), nullable=False),
    )
    op.bulk_insert(
        products,
        [
            {"name": "rope", "price": "9.50", "stock": 1000},
            {"name": "hook", "price": "4.00", "stock": 3},
            {"name": "yacht", "price": "99000.00", "stock": 1},
        ],
    )


def downgrade() -> None:
    for table in ("charges", "orders", "products"):
        op.drop_table(table)
