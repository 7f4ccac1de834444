"""Sign in with a key: the browser gets a random value, and the store a login that has its hash."""

import asyncio
from math import inf
from secrets import token_urlsafe
from time import monotonic

from .._model.filter import By
from .._model.key import Login, Scope
from .._policy import api_key
from .._store.protocol import Store, all_records
from .auth import FRESH_FOR, MISSING_FOR, Authenticator, Caller


class Logins:
    """The logins of a store. They are cached for `FRESH_FOR` seconds, as keys are.

    A login that another server has just made is found, however recently they were read.
    """

    def __init__(self, store: Store, authenticator: Authenticator) -> None:
        self._store = store
        self._authenticator = authenticator
        self._known: dict[str, Login] = {}
        self._read_at = -inf
        self._reading = asyncio.Lock()

    async def sign_in(self, text: str) -> str:
        """Return the value that the holder of this key's text is known by; raise 401 or 403.

        It is another one each time, and stored nowhere. Logins that have ended are removed.
        """
        key, secret = await self._authenticator.verify(text)
        caller = Caller(key)
        caller.require_scope(Scope.READ)
        now = await self._store.now()
        value = token_urlsafe(32)
        login = api_key.new_login(value, key, secret, now)
        await self._store.put(login, By(who=caller.name))
        for one in api_key.superfluous_logins(await all_records(self._store, Login), now):
            await self._store.remove(Login, one.name)
        return value

    async def caller(self, value: str) -> Caller | None:
        """Return who has this value; None unless the login, the key and its secret are valid."""
        asked_at = monotonic()
        name = api_key.login_name(value)
        await self._refresh(asked_at - FRESH_FOR)
        if name not in self._known:
            await self._refresh(asked_at)
        login = self._known.get(name)
        key = None if login is None else await self._authenticator.key_of(login)
        return None if key is None else Caller(key)

    async def sign_out(self, value: str) -> None:
        """End the login of this value, if there is one."""
        caller, name = await self.caller(value), api_key.login_name(value)
        if caller is not None:
            await self._store.remove(Login, name, By(who=caller.name))
            self._known.pop(name, None)

    async def _refresh(self, since: float) -> None:
        """Read the logins, unless they were since then; concurrent requests share one read."""
        if self._read_at >= since:
            return
        async with self._reading:
            if self._read_at >= since:
                return
            await asyncio.sleep(self._read_at + MISSING_FOR - monotonic())
            read_at = monotonic()
            self._known = {login.name: login for login in await all_records(self._store, Login)}
            self._read_at = read_at
