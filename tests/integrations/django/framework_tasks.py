"""Tasks of Django's own framework: `django.tasks`, or the package that it came from."""

import asyncio
import threading

import pytest

try:
    from django.tasks import task
except ModuleNotFoundError:
    from django_tasks import task

from django.contrib.auth.models import Group

from windlass import Retry

ran: list[str] = []


@task
def add(a: int, b: int = 0) -> int:
    ran.append(f"{a}+{b}")
    return a + b


@task
async def count_groups(name: str) -> int:
    return await Group.objects.filter(name=name).acount()


@task(takes_context=True)
def attempt(context: object) -> int:
    return context.attempt  # type: ignore[attr-defined]


@task(backend="stubborn")
def explode() -> None:
    raise pytest.UsageError("boom")


@task(backend="stubborn")
def return_object() -> object:
    ran.append("object")
    return object()


@task(backend="stubborn")
def ask_for_retry() -> None:
    raise Retry("not yet", after=0)


@task(backend="stubborn")
def decline() -> None:
    raise PermissionError("not this card")


may_fail = threading.Event()


@task
def fail_when_told() -> None:
    ran.append("waiting")
    may_fail.wait(20)
    raise pytest.UsageError("boom")


@task(backend="once")
async def wait_for_cancel() -> None:
    if "waiting" not in ran:
        ran.append("waiting")
        await asyncio.Event().wait()
