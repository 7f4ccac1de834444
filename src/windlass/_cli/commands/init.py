"""`windlass init`: write a small project that runs."""

from pathlib import Path

import click

from ...errors import Refused
from ..command import Cli, Command, pass_cli

_TASKS = '''\
"""The tasks of this project. `windlass worker` runs them."""

from windlass import INJECTED, App, Backoff, Context

app = App("sqlite:///windlass.db")


@app.task
def greet(name: str) -> str:
    return f"Hello, {name}!"


@app.task(queue="mail", backoff=Backoff(base=1, factor=2, max_attempts=5), timeout="30s")
async def send_mail(to: str, subject: str, *, ctx: Context = INJECTED) -> str:
    """Send a message; an exception lets it be retried, five attempts in all."""
    if "@" not in to:
        raise ValueError(f"{to!r} is not an address")
    return f"sent {subject!r} to {to} at attempt {ctx.attempt}"


app.schedule("good-morning", greet.step(name="everybody"), "@daily")
'''

_TEST = '''\
"""The harness runs tasks on a store in memory with a clock of its own: nothing waits, nothing is left."""

from tasks import app, greet, send_mail

from windlass import State


def test_a_greeting_has_the_name(windlass_harness):
    harness = windlass_harness(app)
    greet.enqueue(name="Ada")

    harness.run_until_idle()

    (task,) = harness.tasks(greet)
    assert task.as_dict()["result"] == "Hello, Ada!"


def test_a_message_without_an_address_is_dead_after_five_attempts(windlass_harness):
    harness = windlass_harness(app)
    send_mail.enqueue(to="nobody", subject="Hi")

    for _ in range(5):
        harness.run_until_idle(raise_errors=False)
        harness.advance("1m")

    (task,) = harness.tasks(send_mail, State.DEAD)
    assert task.attempt == 5
'''

_SETTINGS = """\
# Settings of the windlass command in this folder.
app = "tasks:app"
# workers = 2                  # supervised worker processes
# store = "postgresql://…"     # in place of the app's own
"""

_README = """\
# {name}

Tasks that run later, with windlass.

```sh
pip install "windlass[cli]" pytest
windlass worker --reload                          # runs tasks; restarts when a file changes
windlass enqueue tasks.greet '{{"name": "Ada"}}'    # in another terminal
windlass tasks list
windlass top                                      # a live view
pytest
```

- `tasks.py`: the app and its tasks
- `test_tasks.py`: tests that need no worker and no database
- `windlass.toml`: settings of the command
"""


def project_files(name: str) -> dict[str, str]:
    """Return the files of a new project, by name."""
    return {
        "tasks.py": _TASKS,
        "test_tasks.py": _TEST,
        "windlass.toml": _SETTINGS,
        "README.md": _README.format(name=name),
        ".gitignore": "__pycache__/\n.venv/\nwindlass.db*\n",
    }


@click.command("init", cls=Command)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR")
@pass_cli
def init(cli: Cli, folder: Path) -> None:
    """Write a small project that runs into DIR.

    An app with tasks and a schedule, tests, settings and a README. No file is overwritten.
    """
    files = project_files(folder.resolve().name)
    taken = [name for name in files if (folder / name).exists()]
    if taken:
        raise Refused(f"{folder} already has {', '.join(taken)}; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise Refused(f"cannot write to {folder}: {error.strerror or error}") from None
    for name in files:
        cli.output.say(str(folder / name), {"file": str(folder / name)})
    cli.output.note(f"next: cd {folder} && windlass worker --reload")
