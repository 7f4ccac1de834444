"""A private HTTP server for tests: one for the whole session, with any number of stores behind it."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import Any, Self, cast

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount

from windlass import App
from windlass._dashboard.site import Site
from windlass._http.app import Api
from windlass._http.server.connections import Connections
from windlass._http.server.protocol import GuardedProtocol
from windlass._http.service import Service
from windlass._store.protocol import Store

START_SECONDS = 10.0


class ApiServer:
    """Serves stores, each at a path of its own, from a thread with a loop of its own."""

    def __init__(self) -> None:
        self._apps: dict[str, Any] = {}
        self._services: list[Service] = []
        self._numbers = count()
        self.connections = Connections()
        # With the protocol said: asyncio sends without delay only on sockets that are known to be TCP.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen()  # Who asks before it runs waits.
        config = uvicorn.Config(
            self._dispatch,
            interface="asgi3",
            http=cast("type[asyncio.Protocol]", partial(GuardedProtocol, among=self.connections)),
            ws="none",
            log_level="warning",
            lifespan="off",
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(START_SECONDS)

    def serve(self, store: Store, *, at: str = "", **options: Any) -> str:
        """Serve a store; the URL at which it is asked. `at` mounts it there, as another app would."""
        return self.serve_app(App(store), at=at, **options)

    def serve_app(self, app: App, *, at: str = "", **options: Any) -> str:
        """Serve an app; the URL at which it is asked. `dashboard`: the settings of one beside it."""
        name = str(next(self._numbers))
        settings = options.pop("dashboard", None)
        served = Api(app, **options)
        site: Any = served if settings is None else Site(served, settings)
        self._apps[name] = Starlette(routes=[Mount(at, site)]) if at else site
        self._services.append(served.service)
        return f"{self.url}/{name}{at}"

    def serve_asgi(self, app: Any) -> str:
        """Serve any ASGI app; the URL at which it is asked."""
        name = str(next(self._numbers))
        self._apps[name] = app
        return f"{self.url}/{name}"

    def closing(self) -> None:
        """Say to all that is served here that the server is about to stop."""
        for service in self._services:
            self._loop.call_soon_threadsafe(service.closing.set)

    def close(self, store: Store) -> None:
        """Close a store that was served, in the loop that has used it."""
        asyncio.run_coroutine_threadsafe(store.close(), self._loop).result(START_SECONDS)

    def closes(self, url: str) -> None:
        """Whoever waits there hears that the server is about to stop."""
        closing = self._apps[url.rpartition("/")[2]].service.closing
        self._loop.call_soon_threadsafe(closing.set)

    @contextmanager
    def serving(self) -> Iterator[Callable[[Store], str]]:
        """Serve stores to whoever asks; in the end they are closed, on the loop that used them."""
        served: dict[str, Store] = {}

        def serve(store: Store) -> str:
            url = self.serve(store, open_to_all=True)
            served[url] = store
            return url

        try:
            yield serve
        finally:
            for url, store in served.items():
                asyncio.run_coroutine_threadsafe(store.close(), self._loop).result(START_SECONDS)
                del self._apps[url.rpartition("/")[2]]

    def tasks(self) -> int:
        """How many asyncio tasks its loop has, but for the one that counts."""

        async def counted() -> int:
            return len(asyncio.all_tasks()) - 1

        return asyncio.run_coroutine_threadsafe(counted(), self._loop).result(START_SECONDS)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._server.serve(sockets=[self._socket])

    async def _dispatch(self, scope: Any, receive: Any, send: Any) -> None:
        name, slash, rest = scope["path"].removeprefix("/").partition("/")
        if not slash:  # a browser asks for /favicon.ico when it likes
            await Response(status_code=204)(scope, receive, send)
            return
        _, _, raw = scope["raw_path"].split(b"/", 2)
        with suppress(asyncio.CancelledError):
            await self._apps[name]({**scope, "path": f"/{rest}", "raw_path": b"/" + raw}, receive, send)
