"""The password in a URL that is typed in a wrong place is not shown by the error about it."""

from time import process_time

import pytest

from tests.shells.cli.conftest import Run
from tests.shells.cli.test_store_urls import SECRET, SPELLINGS
from windlass._cli.passwords import without_passwords

MISPLACED = (
    *(("tasks", "list", "URL"), ("tasks", "URL"), ("URL",), ("check", "URL"), ("migrate", "URL")),
    *(("enqueue", "t", "URL"), ("serve", "URL"), ("keys", "list", "a", "URL", "b"), ("version", "URL")),
    *(("tasks", "list", "--limit", "URL"), ("tasks", "list", "--limit=URL"), ("tasks", "list", "--URL")),
    *(("serve", "--port", "URL"), ("tasks", "list", "--state", "URL"), ("completion", "URL")),
    *(("--store=URL",), ("--stroe", "URL"), ("--stroe=URL", "tasks", "list"), ("enqueue", "URL", "a=1")),
    *(("serve", "--host", "URL"), ("queues", "pause", "URL"), ("tasks", "show", "URL"), ("worker", "URL")),
    *(("tasks", "list", "--queue", "URL", "--since", "URL"), ("tasks", "list", "--config", "URL")),
)


@pytest.mark.parametrize("command", MISPLACED, ids=" ".join)
def test_no_command_shows_the_password_of_a_misplaced_url(run: Run, command: tuple[str, ...]) -> None:
    """As a surplus argument, in place of a command or of another value; with other urls and with quotes."""
    for url in (
        *SPELLINGS,
        f"postgresql://u:'{SECRET}'\\@127.0.0.1/db",
        f"redis://:{SECRET}{'x' * 90}@host/0",
    ):
        for how in ((), ("--debug",), ("--json",)):
            ran = run(*(part.replace("URL", url) for part in command), *how)
            assert SECRET not in ran.out + ran.err, (url, ran.out + ran.err)


def test_what_is_no_url_is_shown_as_it_was_typed(run: Run) -> None:
    assert "(ann@example.org)" in run("tasks", "list", "ann@example.org").err
    assert "(ask ann@example.org: now)" in run("tasks", "list", "ask ann@example.org: now").err
    assert "(127.0.0.1:80/x)" in run("tasks", "list", "127.0.0.1:80/x").err
    assert "(postgresql://db:5432/shop)" in run("tasks", "list", "postgresql://db:5432/shop").err
    assert "(postgresql://…)" in run("tasks", "list", "postgresql://u:pw@db:5432/shop").err


MANY = 100_000


@pytest.mark.parametrize(
    "text", ["x" * MANY * 10, "/" * MANY + "@", "a://" + "/" * MANY + "@", "password " * MANY], ids=len
)
def test_long_arguments_take_linear_time(text: str) -> None:
    began = process_time()

    without_passwords("not a number", [text])

    assert process_time() - began < 1
