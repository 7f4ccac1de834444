"""`windlass alerts`: when dead letters are too many, and who is told. (L4)"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from ..._client.alerts import AlertStatus
from ..._model.alert import HOLD, MAX_COUNT
from ..._policy.alerts import webhook_origin
from ..command import Asked, Commands, pass_asked
from ..documents import plain
from ..exit_codes import ExitCode
from ..operator_actions import audited
from ..options import duration
from ..output import Column, Styled
from ..time_text import ago, iso, seconds, span

if TYPE_CHECKING:
    from ...app import App


@click.group(cls=Commands)
def alerts() -> None:
    """See whether too many tasks have died; add, remove and try alerts."""


@alerts.command("list")
@click.option("--reveal", is_flag=True, help="Show webhooks whole.")
@pass_asked
def list_alerts(asked: Asked, reveal: bool) -> None:
    """List alerts: whether they are raised, and how many dead letters there are for each."""

    async def work(app: "App") -> None:
        found = await app.operator.alerts.list()
        now = await app.operator.now()
        none = "there are no alerts; `windlass alerts add NAME --count 10 --window 5m` makes one"
        asked.output.items(
            found, _columns(now, reveal=reveal), lambda one: _document(one, reveal=reveal), none=none
        )

    asked.run(work)


@alerts.command("add")
@click.argument("name")
@click.option("--type", "type_name", metavar="TYPE", help="Count dead letters of this type alone.")
@click.option("--queue", "-q", help="Count dead letters of this queue alone.")
@click.option("--count", type=click.IntRange(1, MAX_COUNT), default=1, show_default=True, help="So many.")
@click.option("--window", type=duration, help="Within so long (default: however long ago they died).")
@click.option(
    "--hold",
    type=duration,
    help=f"Cleared once there were fewer for so long (default: {span(HOLD.total_seconds())}).",
)
@click.option("--webhook", metavar="URL", help="Where to post it (default: it is logged alone).")
@audited
@pass_asked
def add(
    asked: Asked,
    /,
    *,
    name: str,
    type_name: str | None,
    queue: str | None,
    count: int,
    window: timedelta | None,
    hold: timedelta | None,
    webhook: str | None,
) -> None:
    """Add an alert, or change the one of that name. The keeper notices within seconds."""

    async def work(app: "App") -> None:
        alert = await app.operator.alerts.add(
            name, type=type_name, queue=queue, count=count, window=window, hold=hold, webhook=webhook
        )
        document = {key: value for key, value in plain(alert).items() if key not in {"name", "webhook"}}
        where = None if alert.webhook is None else webhook_origin(alert.webhook)
        asked.output.say(f"added {name}", {"alert": name, **document, "webhook": where})
        if alert.webhook is not None and app.alert_notifier.secret is None:
            unsigned = "messages will not be signed unless workers have WINDLASS_WEBHOOK_SECRET"
            asked.output.note(unsigned, warning=True)

    asked.run(work)


@alerts.command("remove")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@audited
@pass_asked
def remove(asked: Asked, names: tuple[str, ...]) -> None:
    """Forget alerts. One that is raised is not cleared: nothing more is told of it."""

    async def work(app: "App") -> None:
        for name in names:
            await app.operator.alerts.remove(name)
            asked.output.say(f"removed {name}", {"alert": name, "removed": True})

    asked.run(work)


@alerts.command("test")
@click.argument("name")
@pass_asked
def test(asked: Asked, name: str) -> None:
    """Send a message in state "test" to an alert's webhook, from here; exits with 1 if it is not taken."""

    async def work(app: "App") -> bool:
        secret = app.alert_notifier.secret
        answer = await app.operator.alerts.test(name, secret=secret)
        signed = "signed" if secret is not None else "unsigned"
        asked.output.say(
            f"{'taken' if answer.taken else 'not taken'} ({signed}): {answer.reason}",
            {
                "alert": name,
                "taken": answer.taken,
                "signed": secret is not None,
                "status": answer.status,
                "reason": answer.reason,
            },
        )
        return answer.taken

    if not asked.run(work):
        raise click.exceptions.Exit(ExitCode.BAD_NEWS)


def _document(status: AlertStatus, *, reveal: bool) -> dict[str, Any]:
    alert, alarm = status.alert, status.alarm
    return {
        "alert": alert.name,
        "state": "raised" if status.raised else "quiet",
        "raised_at": None if alarm.raised_at is None else iso(alarm.raised_at),
        "number": status.number,
        "exact": status.exact,
        "count": alert.count,
        "window": seconds(alert.window),
        "hold": seconds(alert.hold),
        "type": alert.type,
        "queue": alert.queue,
        "webhook": _webhook(status, reveal=reveal) or None,
        "unsent": len(alarm.unsent),
    }


def _columns(now: datetime, *, reveal: bool) -> Sequence[Column[AlertStatus]]:
    return (
        Column("alert", lambda one: one.alert.name, elastic=True),
        Column("state", _state),
        Column("since", lambda one: ago(one.alarm.raised_at, now)),
        Column("dead", lambda one: f"{'' if one.exact else '~'}{one.number:,}", right=True),
        Column("takes", lambda one: f"{one.alert.count:,}", right=True),
        Column("window", _window, right=True),
        Column("type", lambda one: one.alert.type or "any", elastic=True, keeps_end=True),
        Column("queue", lambda one: one.alert.queue or "any"),
        Column("webhook", lambda one: _webhook(one, reveal=reveal), elastic=True, optional=True),
        Column("unsent", lambda one: str(len(one.alarm.unsent) or ""), right=True, optional=True),
    )


def _state(status: AlertStatus) -> Styled:
    return ("raised", "bold red") if status.raised else ("quiet", "green")


def _window(status: AlertStatus) -> str:
    return "" if status.alert.window is None else span(status.alert.window.total_seconds())


def _webhook(status: AlertStatus, *, reveal: bool) -> str:
    url = status.alert.webhook
    return "" if url is None else url if reveal else webhook_origin(url)
