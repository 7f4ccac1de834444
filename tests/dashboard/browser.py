"""A window of the browser that notes what goes wrong in it."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from playwright.sync_api import ConsoleMessage, Page, expect

Run: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]

expect.set_options(timeout=10_000)

_NOTE_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`violation of the content security policy: ${event.violatedDirective} ${event.blockedURI}`));
"""


class Tab:
    """A window, as `page`; `complaints` are its errors, and violations of its content security policy.

    `expected` is part of a message that the test provokes: such messages are no complaints.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.expected: list[str] = []
        page.add_init_script(_NOTE_VIOLATIONS)
        page.on("pageerror", lambda error: self._note(f"error in the page: {error}"))
        page.on("console", self._on_console)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._note(f"{message.text} ({message.location.get('url', '')})")

    def _note(self, text: str) -> None:
        if not any(part in text for part in self.expected):
            self.complaints.append(text)

    def is_live(self) -> None:
        """Wait until the page gets updates."""
        expect(self.page.locator("#live-state")).to_have_attribute("data-state", "live")
