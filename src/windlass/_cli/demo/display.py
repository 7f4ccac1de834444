"""Showing it: a live picture for a terminal, or a few lines of plain text for a pipe."""

from typing import TYPE_CHECKING, Protocol, Self

from ... import State
from .watch import Seen

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

    from .crew import Crew

PLAIN_EVERY = 2.0
_STATES = tuple(State)
_STYLES = {State.RUNNING: "cyan", State.COMPLETED: "green", State.CANCELLED: "yellow", State.DEAD: "red"}
_ABOVE_STORY = 16  # lines of the picture that are not story
_BAR = 30


class Display(Protocol):
    """What the demo tells as it goes."""

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was found."""
        ...

    def tell(self, seconds: float, text: str) -> None:
        """A step of the story has happened."""
        ...

    def show(self, seen: Seen, crew: "Crew") -> None:
        """This is how things stand."""
        ...


class Plain:
    """Lines of text: every step of the story, and every few seconds how far it is."""

    def __init__(self, console: "Console") -> None:
        self._console = console
        self._shown_at = 0.0

    def __enter__(self) -> Self:
        """Nothing to begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to put back."""

    def tell(self, seconds: float, text: str) -> None:
        """One line."""
        self._line(seconds, text)

    def show(self, seen: Seen, crew: "Crew") -> None:
        """One line, now and then."""
        if seen.seconds - self._shown_at < PLAIN_EVERY:
            return
        self._shown_at = seen.seconds
        states = ", ".join(f"{number:,} {state}" for state in _STATES if (number := seen.of(state)))
        self._line(seen.seconds, f"  {states}; {seen.rate:,.0f}/s; {len(crew.names)} workers")

    def _line(self, seconds: float, text: str) -> None:
        self._console.print(f"{seconds:5.1f} s  {text}", markup=False, highlight=False, soft_wrap=True)


class Living:
    """A picture that is drawn anew several times a second, the story beneath it."""

    def __init__(self, console: "Console") -> None:
        from rich.live import Live

        self._console = console
        self._live = Live(console=console, refresh_per_second=8, transient=True)
        self._story: list[tuple[float, str]] = []
        self._picture: tuple[Seen, Crew] | None = None

    def __enter__(self) -> Self:
        """Take the lower part of the terminal."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the story behind as plain lines; the picture was for the moment."""
        self._live.stop()
        for seconds, text in self._story:
            self._console.print(_step(seconds, text))

    def tell(self, seconds: float, text: str) -> None:
        """Add it to the story."""
        self._story.append((seconds, text))
        self._draw()

    def show(self, seen: Seen, crew: "Crew") -> None:
        """Draw it."""
        self._picture = (seen, crew)
        self._draw()

    def _draw(self) -> None:
        from rich.console import Group
        from rich.text import Text

        parts: list[RenderableType] = []
        if self._picture is not None:
            seen, crew = self._picture
            parts += [_counts(seen), Text(), _progress(seen), _workers(seen, crew), Text()]
        room = max(self._console.height - _ABOVE_STORY, 4)
        parts += [_step(seconds, text) for seconds, text in self._story[-room:]]
        self._live.update(Group(*parts))


def _counts(seen: Seen) -> "Table":
    from rich.table import Table

    table = Table(box=None, padding=(0, 1), header_style="bold", show_footer=True, footer_style="bold")
    table.add_column("queue", "all", min_width=8)
    for state in _STATES:
        table.add_column(state, f"{seen.of(state):,}", justify="right", style=_STYLES.get(state, ""))
    for queue in sorted({queue for queue, _ in seen.counts}):
        numbers = [seen.counts[queue, state] for state in _STATES]
        table.add_row(queue, *(f"{number:,}" if number else "[dim]·[/]" for number in numbers))
    return table


def _progress(seen: Seen) -> "Text":
    from rich.text import Text

    share = seen.ended / seen.total if seen.total else 0.0
    filled = round(share * _BAR)
    return Text.assemble(
        " ",
        ("━" * filled, "green"),
        ("━" * (_BAR - filled), "dim"),
        f" {seen.ended:,} of {seen.total:,} ended, {seen.rate:,.0f}/s, {seen.seconds:.0f} s",
    )


def _workers(seen: Seen, crew: "Crew") -> "Text":
    from rich.text import Text

    text = Text(" ")
    for name in crew.names:
        text.append(f"{name} ", "cyan").append(f"{seen.running[name]}  ")
    for name in crew.killed:
        held = seen.running[name]
        text.append(f"{name} killed", "red").append(f", {held} to rescue  " if held else ", rescued  ")
    for name in crew.retired:
        text.append(f"{name} stopped  ", "dim")
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _step(seconds: float, text: str) -> "Text":
    from rich.text import Text

    return Text.assemble((f"{seconds:5.1f} s  ", "dim"), text, no_wrap=True, overflow="ellipsis")
