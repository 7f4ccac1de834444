"""The tables of windlass, by its own SQL: each of its steps is a transaction of its own."""

from alembic import op
from shop.tasks import app

revision, down_revision = "0002", "0001"

SCHEMA = 10  # after an upgrade of windlass add a revision from this number to the next


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute(app.migration_sql(0, SCHEMA))


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute(app.migration_sql(SCHEMA, 0))
