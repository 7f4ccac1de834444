"""A person at a browser without scripts: keeps cookies, follows what pages say, and sends their forms."""

import re
from http.cookies import SimpleCookie
from typing import Any, Self

import httpx2

_TOKEN = re.compile(r'name="token" value="([0-9a-f]{64})"')


class Person:
    """Looks at the dashboard at `url`, which ends in a slash; `cookies` are those of the browser.

    Unlike a client of httpx it keeps cookies that need HTTPS, as browsers do for their own machine.
    """

    def __init__(self, http: httpx2.AsyncClient, url: str, **headers: str) -> None:
        self.http = http
        self.url = url
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.cookies: dict[str, str] = {}

    def with_cookies(self, **headers: str) -> Self:
        """Someone who has the same cookies."""
        other = type(self)(self.http, self.url, **headers)
        other.cookies = {**self.cookies}
        return other

    async def get(self, path: str = "", **headers: str) -> httpx2.Response:
        """Ask for a page; redirects are not followed."""
        return await self._send("GET", path, None, headers)

    async def token(self, path: str = "") -> str:
        """The token on a page."""
        found = _TOKEN.search((await self.get(path)).text)
        assert found, "there is no form on this page"
        return found[1]

    async def post(
        self, path: str, fields: dict[str, str], *, token: str | None = None, **headers: str
    ) -> httpx2.Response:
        """Send a form; with this token, if one is given."""
        sent = fields if token is None else {**fields, "token": token}
        return await self._send("POST", path, sent, headers)

    async def sign_in(self, key: str, page: str = "") -> httpx2.Response:
        """Sign in, as the page for it lets people do."""
        token = await self.token("login")
        return await self.post("login", {"key": key, "next": page}, token=token)

    async def _send(
        self, method: str, path: str, form: dict[str, str] | None, headers: dict[str, str]
    ) -> httpx2.Response:
        told: dict[str, Any] = {"accept": "text/html", **self.headers}
        told |= {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookies:
            told["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        response = await self.http.request(method, f"{self.url}{path}", data=form, headers=told)
        self.http.cookies.clear()
        for line in response.headers.get_list("set-cookie"):
            for name, morsel in SimpleCookie(line).items():
                if morsel["max-age"] == "0":
                    self.cookies.pop(name, None)
                else:
                    self.cookies[name] = morsel.value
        return response
