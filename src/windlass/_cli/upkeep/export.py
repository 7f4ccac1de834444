"""`windlass export`: ended tasks with their attempts, as JSON lines."""

import os
import stat
import sys
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import IO, Annotated

import click
import msgspec

from ..._client.tasks.export import EndedTask, cursor_text, next_ones, parse_cursor
from ..._documents.tasks import ended_document
from ..._model.filter import Filter
from ..._policy.input.quote import counted
from ...errors import InvalidOption
from ..command import Cli, Command, on_store
from ..filters import ended_filter_options
from ..operator_actions import reveal_option
from ..text import iso, json_text

_PROGRESS_SECONDS = 2.0
_CHUNK = 1 << 16
_BEGIN = b'{"id": "'  # of every line


class _Line(msgspec.Struct):
    """What a line of an export tells about where it ends."""

    id: str
    finished_at: Annotated[datetime, msgspec.Meta(tz=True)]


@click.command("export", cls=Command)
@ended_filter_options
@click.option(
    "--output",
    "-o",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write to this new file  [default: standard output]",
)
@click.option("--resume", is_flag=True, help="Continue FILE after its last complete line")
@click.option("--after", metavar="CURSOR", help="Start after this task: its finished_at and id, with a comma")
@reveal_option("Write secret fields of payloads and results unmasked")
@on_store
async def export(
    cli: Cli, where: Filter, file: Path | None, resume: bool, after: str | None, reveal: bool
) -> None:
    """Write ended tasks and their attempts as JSON lines.

    The task that ended first comes first.

    An export that was interrupted continues with --output FILE --resume, or with --after and the cursor that
    is printed at the end, without loss or repetition. Tasks that ended less than 5 seconds ago are left for
    the next export.
    """
    if resume and (file is None or after is not None):
        raise InvalidOption("--resume continues the file given with --output, and takes no --after")
    if after is not None:
        parse_cursor(after)
    if file is None:
        written = await _write(cli, cli.operator.export(where, after=after), sys.stdout, reveal=reveal)
    else:
        with _open(file, resume=resume) as output:
            if resume:
                after = _last_cursor(output, file)
            written = await _write(cli, cli.operator.export(where, after=after), output, reveal=reveal)
            os.fsync(output.fileno())
    number, cursor = written
    to_file = "" if file is None else f" to {file}"
    cli.output.note(f"exported {counted(number, 'task')}{to_file}" + (f"; cursor {cursor}" if cursor else ""))


async def _write(
    cli: Cli, exported: AsyncIterator[EndedTask], output: IO[str], *, reveal: bool
) -> tuple[int, str | None]:
    """Write each task on a line; return how many there were, and the cursor of the last."""
    number, last = 0, None
    due = monotonic() + _PROGRESS_SECONDS
    while some := await next_ones(exported):
        if reveal:
            await cli.operator.reveal([ended.task.id for ended in some])
        for ended in some:
            output.write(json_text(ended_document(ended, reveal=reveal), encoding="ascii") + "\n")
        number, last = number + len(some), ended
        if monotonic() >= due:
            output.flush()
            due = monotonic() + _PROGRESS_SECONDS
            until = "" if ended.task.finished_at is None else f", up to {iso(ended.task.finished_at)}"
            cli.output.note(f"exported {counted(number, 'task')}{until}")
    output.flush()
    return number, None if last is None else last.cursor


def _open(file: Path, *, resume: bool) -> IO[str]:
    try:
        mode = "r+" if resume and file.exists() else "x"
        output = open(file, mode, encoding="ascii", newline="\n", opener=_private)  # noqa: SIM115  returned
    except FileExistsError:
        raise InvalidOption(f"{file} exists already; --resume continues it") from None
    except OSError as error:
        raise InvalidOption(f"cannot write to {file}: {error.strerror or error}") from None
    if not stat.S_ISREG(os.fstat(output.fileno()).st_mode):
        output.close()
        raise InvalidOption(f"{file} is no regular file")
    return output


def _private(name: str, flags: int) -> int:
    """Open a file; a new one is for this user only, as payloads may be confidential."""
    return os.open(name, flags, 0o600)


def _last_cursor(output: IO[str], file: Path) -> str | None:
    """Cut off an incomplete last line, and return the cursor of the last complete one, if there is any.

    Raises InvalidOption, and leaves the file as it is, if it is not an export.
    """
    with file.open("rb") as lines:
        end = _after_newline(lines, lines.seek(0, os.SEEK_END))
        start = _after_newline(lines, end - 1) if end else 0
        lines.seek(start)
        line = lines.read(end - start)
        rest = lines.read(len(_BEGIN))
    try:
        last = msgspec.json.decode(line, type=_Line) if line else None
    except msgspec.DecodeError:
        last = None
    if (line and last is None) or not _BEGIN.startswith(rest):
        raise InvalidOption(f"the last line of {file} is not a task that was exported")
    output.seek(end)
    output.truncate(end)
    return None if last is None else cursor_text(last.finished_at, last.id)


def _after_newline(lines: IO[bytes], before: int) -> int:
    """Return the position after the last newline before this position; 0 if there is none."""
    while before > 0:
        start = max(before - _CHUNK, 0)
        lines.seek(start)
        found = lines.read(before - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        before = start
    return 0
