"""Sign in with a key: the browser gets a random value, and the store a login that has its hash."""

from math import inf
from secrets import token_urlsafe
from time import monotonic

from .._model.filter import By
from .._model.key import Login, Scope
from .._observe.cached_reads import RecentRead
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
        self._reading = RecentRead(self._read)

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
        known = await self._since(asked_at - FRESH_FOR)
        if name not in known:
            known = await self._since(asked_at)
        login = known.get(name)
        key = None if login is None else await self._authenticator.key_of(login)
        return None if key is None else Caller(key)

    async def sign_out(self, value: str) -> None:
        """End the login of this value, if there is one."""
        caller, name = await self.caller(value), api_key.login_name(value)
        if caller is not None:
            await self._store.remove(Login, name, By(who=caller.name))
            (await self._since(-inf)).pop(name, None)

    async def _since(self, since: float) -> dict[str, Login]:
        """Return the logins as they were then or later."""
        return await self._reading.since(since, pause=MISSING_FOR, at_most=FRESH_FOR)

    async def _read(self) -> dict[str, Login]:
        return {login.name: login for login in await all_records(self._store, Login)}
