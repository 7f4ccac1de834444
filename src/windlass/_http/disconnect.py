"""Noticing that who asked has gone."""

from starlette.requests import Request


async def gone(request: Request) -> None:
    """Return once the connection has ended. Only for a request whose body nobody else reads."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
