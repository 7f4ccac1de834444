"""Every block of the docs is run, is data that can be read, or says why it is not run; its commands exist."""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from tests.docs.blocks import DOCS, ROOT, Block, blocks_of
from windlass._cli.root import root

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md"))]
RUN = {"python", "bash", "text"}  # by test_pages
DATA = {"diff", "dockerfile", "http", "ini", "json", "log", "mermaid", "nginx", "procfile", "toml", "yaml"}
READERS = {"json": json.loads, "toml": tomllib.loads, "yaml": lambda text: [*yaml.safe_load_all(text)]}
NAMES = {page: str(page.relative_to(ROOT)) for page in PAGES}


def all_blocks() -> Iterator[tuple[str, Block]]:
    for page in PAGES:
        for block in blocks_of(page):
            yield f"{NAMES[page]}:{block.line}", block


def test_a_block_that_is_not_run_says_why() -> None:
    silent = [
        f"{where} ({block.language})"
        for where, block in all_blocks()
        if block.language not in RUN | DATA and not block.reason
    ]

    assert not silent, "write `<!-- not run: why -->` before the fence"


def test_blocks_that_are_run_are_on_pages_that_are_followed() -> None:
    followed = {ROOT / "README.md", *DOCS.glob("*.md")}
    runnable = {page for page in PAGES if {block.language for block in blocks_of(page)} & {"python", "bash"}}

    assert runnable <= followed


def test_data_can_be_read() -> None:
    for where, block in all_blocks():
        if (read := READERS.get(block.language)) and not block.reason:
            try:
                read(block.text)
            except (ValueError, yaml.YAMLError) as error:
                pytest.fail(f"{where}: {error}")


def commands_in(text: str) -> Iterator[list[str]]:
    """The windlass commands that a text of any language contains, as words."""
    joined = re.sub(r"(?m)(^|\s)#.*$", "", re.sub(r"\\\n\s*", " ", text))
    for line in joined.splitlines():
        for found in re.finditer(r"(?:^|[\s/`$(=\"'])windlass ((?:[a-z-]|<)[^|#;>`]*)", line):
            try:
                yield shlex.split(found[1].split("&&")[0])
            except ValueError:  # the end of a quoted command
                yield found[1].replace('"', " ").replace("'", " ").split()
    for found in re.finditer(r"\[\"windlass\", ([^\]]*)\]", joined):  # of a container
        yield json.loads(f"[{found[1]}]")


def wrong_in(words: list[str]) -> str | None:
    """What of a command does not exist."""
    command: click.Command = root
    shared = {name for option in root.params for name in option.opts}
    rest = [word for word in words if word]
    while isinstance(command, click.Group) and rest:
        if rest[0].startswith("-"):
            rest = rest[1:] if rest[0] in ("--json", "--debug") else rest[2:]
            continue
        found = command.get_command(click.Context(command), rest[0])
        if found is None:
            return f"there is no command {rest[0]!r}"
        command, rest = found, rest[1:]
    known = shared | {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    for word in rest:
        if word.startswith("--") and word.split("=")[0] not in known | {"--help"}:
            return f"{command.name} has no option {word}"
    return None


def test_commands_and_options_exist() -> None:
    named = [
        (where, words)
        for where, block in all_blocks()
        if block.language not in ("log", "py", "python", "text")
        for words in commands_in(block.text)
    ]
    wrong = [
        f"{where}: windlass {' '.join(words)}: {found}"
        for where, words in named
        if (found := wrong_in(words))
    ]

    assert len(named) > 50
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "text",
    ["windlass wurker shop:app", "x && windlass dead replai", 'CMD ["windlass", "worker", "--slot", "3"]'],
)
def test_a_command_that_does_not_exist_is_found(text: str) -> None:
    assert [wrong_in(words) for words in commands_in(text)] != [None]
    assert [*commands_in(text)]


def test_a_mark_belongs_to_its_block(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- not run: why -->\n```sh\na\n```\n\n```sh\nb\n```\n")

    assert [(block.line, block.reason) for block in blocks_of(page)] == [(2, "why"), (6, "")]
