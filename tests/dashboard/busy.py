"""A store in which everything has happened: tasks in every state, records of every kind, hostile texts."""

from windlass import App, By, Context, Fatal, WorkerSettings

QUEUES = ("mail", "reports", "a/b", "idle")
HOSTILE = "<script>alert(1)</script>"


def declare(app: App) -> None:
    """Declare the types of the tasks."""

    @app.task(name="welcome", queue="mail")
    async def welcome(user_id: int) -> dict[str, int]:
        return {"user_id": user_id}

    @app.task(name="receipt", queue="mail", max_attempts=2, secret=["card"])
    async def receipt(order: int, card: str) -> None:
        if order % 2:
            raise ConnectionError(f"mail server {order}.example.org timed out after {order} s")
        raise Fatal(f"{HOSTILE} has no address")

    @app.task(name="reports.monthly", queue="reports")
    async def monthly(month: int, *, ctx: Context) -> str:
        ctx.progress(0.5, f"{HOSTILE} half of it")
        return "x" * 2_000

    @app.task(name="retrying", queue="mail", max_attempts=5)
    async def retrying() -> None:
        raise TimeoutError("the upstream service did not respond within 30 seconds; " * 10)


async def fill(app: App) -> None:
    """Enqueue tasks, and run all but some of them."""
    declare(app)
    await app.open()
    client, operator = app.client, app.operator
    for number in range(60):
        tenant = ("", "acme", "globex", "a/b+c:d")[number % 4]
        await client.send("welcome", {"user_id": number}, tenant=tenant)
    for number in range(12):
        await client.send("receipt", {"order": number, "card": "4111 1111"}, tenant="acme")
    await client.send("retrying", {})
    first = await client.send("reports.monthly", {"month": 1})
    await client.send("welcome", {"user_id": 1}, after=[first])
    await app.worker(WorkerSettings(queues=("mail", "reports"), slots=4, drain=True)).run()

    second = await client.send("reports.monthly", {"month": 2})
    await client.send("welcome", {"user_id": 2}, after=[second])
    await client.send("reports.monthly", {"month": 3}, delay="1h")
    await client.send("unknown.type", {"text": HOSTILE, "list": [1, 2, {"deep": [None]}]}, queue="a/b")
    cancelled = await client.send("welcome", {"user_id": 99}, delay="1d", idempotency_key="once")
    await operator.cancel_one(cancelled.id, by=By(who="ann", why="not needed"))
    await operator.pause("reports")
    await operator.set_queue("mail", fairness="round_robin", weights={"acme": 3})
    await operator.limits.set("mail-rate", create=True, queue="mail", rate="100/m")
    await operator.endpoints.disable("https://hooks.example.org/orders", tenant="acme", task_id=second.id)
    await operator.alerts.add("receipts", type="receipt", count=3)
    schedules = operator.schedules
    await schedules.put(
        await schedules.make("nightly/report", "reports.monthly", "0 3 * * *", b'{"month": 1}')
    )
