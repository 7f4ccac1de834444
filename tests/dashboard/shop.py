"""The program of a shop, run by a worker process: a file tells whether its payment gateway works."""

import os
from pathlib import Path

from windlass import App

app = App()


@app.task(name="shop.charge", queue="payments", max_attempts=1)
def charge(order: int, gateway: str = "main") -> str:
    """Charge an order. The main gateway works while the file GATEWAY_UP is there."""
    if gateway == "main" and not Path(os.environ["GATEWAY_UP"]).exists():
        raise ConnectionRefusedError(f"gateway 10.0.0.{order}:443 refused order {order}")
    return f"charged by {gateway}"
