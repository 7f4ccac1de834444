"""`windlass serve`: the store over HTTP, for workers and programs elsewhere. (I2, I4)"""

import asyncio
import errno
import logging
import signal
import socket
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from ...config import LOG_FORMATS, LOG_LEVELS
from ...errors import InvalidOption, Refused
from ..asked import Asked, Command, pass_asked
from ..logs import set_up
from ..terminal import stderr

if TYPE_CHECKING:
    from ...app import App

logger = logging.getLogger("windlass.http")

PORT = 8765
_BACKLOG = 2048
_STREAM = "/work/wakes"
_NOT_FREE = {errno.EADDRINUSE: "is taken by another program", errno.EACCES: "is not for this user"}


@click.command("serve", cls=Command)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=PORT, show_default=True, help="And on which port."
)
@click.option("--insecure", is_flag=True, help="Ask nobody for a key, wherever it listens.")
@click.option("--log-level", type=click.Choice(LOG_LEVELS), help="Log from this level on.")
@click.option("--log-format", type=click.Choice(LOG_FORMATS), help="Lines for people, or JSON.")
@pass_asked
def serve(
    asked: Asked,
    /,
    *,
    host: str,
    port: int,
    insecure: bool,
    log_level: str | None,
    log_format: str | None,
) -> None:
    """Serve the store over HTTP until told to stop: `--store http://…` is then a store.

    If there are keys when it starts (`windlass keys create`) every request needs one. Without keys it
    listens on this machine alone, and asks for none until it is started again.
    """
    serving = _serving()
    asked.flags |= {"log_level": log_level, "log_format": log_format}
    settings = asked.settings
    set_up(settings.log_level, settings.log_format, colour=stderr().is_terminal and not stderr().no_color)
    logging.getLogger("uvicorn.error").addFilter(lambda record: record.levelno > logging.INFO)

    async def work(app: "App") -> None:
        await app.open()
        has_keys = bool(await app.operator.keys.list())
        serving.check_safe(host, has_keys=has_keys, insecure=insecure)
        with _listening(host, port) as listener:
            server = serving.server(
                app.store, host=host, port=port, open_to_all=insecure, open_until_keys=not has_keys
            )
            logger.info("%s", serving.told(host, port, app.place, app.operator.promise))
            if insecure or not has_keys:
                why = "--insecure" if has_keys else "there are no keys"
                logger.warning("%s: whoever can reach it may do everything", why)
            await _until_told(server, listener)
        logger.info("the server has stopped")

    asked.run_anywhere(work)


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens there, or a word on why there can be none."""
    try:
        return _listener(host, port)
    except OSError as error:
        if error.errno in _NOT_FREE:
            why = _NOT_FREE[error.errno]
            raise Refused(f"port {port} of {host} {why}; choose another with --port") from None
        raise InvalidOption(f"it cannot listen on {host}: {error.strerror or error}") from None


def _listener(host: str, port: int) -> socket.socket:
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    # With the protocol said: asyncio sends without delay only on sockets that are known to be TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


async def _until_told(server: Any, listener: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C; a second one does not wait for what is being answered."""
    stopping = asyncio.Event()
    server.config.app = _ending_streams(server.config.app, stopping)

    def stop() -> None:
        server.force_exit = stopping.is_set()
        server.should_exit = True
        stopping.set()

    served = asyncio.create_task(server.serve(sockets=[listener]))
    await asyncio.sleep(0)  # by then it has taken the signals, and would die of them in the end
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    await served


def _ending_streams(app: Any, stopping: asyncio.Event) -> Any:
    """The app, whose streams of hints end when the server stops: by themselves they never would."""

    async def ending(connection: Any, receive: Any, send: Any) -> None:
        if connection.get("path") != _STREAM:
            await app(connection, receive, send)
            return
        begun = False

        async def noting(message: Any) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        stream = asyncio.ensure_future(app(connection, receive, noting))
        told = asyncio.ensure_future(stopping.wait())
        try:
            await asyncio.wait([stream, told], return_when=asyncio.FIRST_COMPLETED)
            if stream.done():
                await stream
            elif begun:
                stream.cancel()
                await asyncio.wait([stream])
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            told.cancel()
            stream.cancel()

    return ending


def _serving() -> ModuleType:
    try:
        return import_module("windlass._http.serving")
    except ModuleNotFoundError as missing:
        raise InvalidOption("serving HTTP takes more: pip install 'windlass[http]'") from missing
