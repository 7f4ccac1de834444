"""Reads pages and sends forms as a browser without scripts does."""

import re
from html import unescape
from time import monotonic

import httpx2


class Visitor:
    """Looks at one dashboard. The form token of the last page that had one goes with each form."""

    def __init__(self, url: str, **headers: str) -> None:
        self.url = url
        self.http = httpx2.Client(headers=headers, timeout=30)
        self.token = ""

    def get(self, path: str, status: int = 200) -> str:
        """Return a page."""
        response = self.http.get(f"{self.url}{path}")
        assert response.status_code == status, response.text
        if found := re.search(r'name="token" value="([0-9a-f]+)"', response.text):
            self.token = found[1]
        return response.text

    def text(self, path: str, status: int = 200) -> str:
        """Return the words of a page, without tags."""
        page = self.get(path, status).partition("<main")[2].partition("</main>")[0]
        return words("<" + page)

    def shows(self, path: str, text: str) -> str:
        """Read a page until it has this text: numbers that take long to count are left out at first."""
        deadline = monotonic() + 30
        while text not in (found := self.text(path)):
            assert monotonic() < deadline, found
        return found

    def post(self, path: str, status: int = 303, **fields: str | list[str]) -> httpx2.Response:
        """Send a form."""
        response = self.http.post(f"{self.url}{path}", data={"token": self.token, **fields})
        assert response.status_code == status, response.text
        return response


def words(html: str) -> str:
    """Return what HTML says, without tags."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())
