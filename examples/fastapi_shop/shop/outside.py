"""Stands for the services of others: a bank that charges cards, and a supplier that counts his stock."""

from decimal import Decimal

from sqlalchemy.dialects.postgresql import insert

from .database import Sessions
from .models import Charge


class Declined(Exception):
    """The bank refuses for good; a retry would not help."""


class Bank:
    """Charges once for each idempotency key, as the API of a bank does, whatever becomes of the caller."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def charge(self, order_id: int, amount: Decimal, *, key: str) -> None:
        """Charge, unless this key was used before. Raises Declined."""
        if amount > 1000:
            raise Declined(f"{amount} is above the limit of the card")
        async with self._sessions.begin() as session:
            charge = insert(Charge).values(key=key, order_id=order_id, amount=amount)
            await session.execute(charge.on_conflict_do_nothing())


async def supplied() -> dict[str, int]:
    """Return what the supplier has, by product."""
    return {"rope": 1000, "hook": 40}
