"""API keys: what each allows, when it was last used, who is signed in; create, rotate and revoke them."""

from collections import Counter
from collections.abc import Mapping
from secrets import token_urlsafe
from typing import Any

from ...._http.resources.keys import create_key, list_keys, list_logins, revoke_key, rotate_key, sign_out_key
from ...._model.key import Scope
from ...._policy.api_key import RATES
from ...form_fields import number_of, seconds_of
from ...page import Done, Pages, Shown
from ...view import View

keys = Pages()

SCOPES = {
    Scope.ENQUEUE: "add tasks",
    Scope.READ: "see tasks, queues and workers",
    Scope.OBSERVE: "see them without payloads, results and texts; alone, or with operate",
    Scope.WORK: "claim, run and settle tasks",
    Scope.OPERATE: "cancel, replay, discard; pause, limit, schedule",
    Scope.REVEAL: "see secret values",
    Scope.ADMIN: "everything, keys included",
}
LIFETIMES = {"": "until it is revoked", "1d": "1 day", "7d": "7 days", "30d": "30 days", "90d": "90 days",
             "365d": "1 year"}  # fmt: skip
OVERLAPS = {"0s": "end it now", "1h": "1 hour", "24h": "24 hours", "7d": "7 days", "30d": "30 days"}


@keys.screen("/keys", "keys.html", "Keys", scope=Scope.ADMIN)
async def show_keys(view: View) -> Mapping[str, Any]:
    """List the keys that are valid; with `all`, also those that were revoked or have expired."""
    shows_all = view.query("all") == "1"
    found = await view.call(list_keys, query={"all": shows_all})
    return {
        "keys": sorted(found.items, key=lambda key: (key.label.casefold(), key.id)),
        "logins": Counter(login.key for login in (await view.call(list_logins)).items),
        "shows_all": shows_all,
        "scopes": SCOPES,
        "lifetimes": LIFETIMES,
        "overlaps": OVERLAPS,
        "request": token_urlsafe(16),  # so that a form that is sent twice creates one key
    }


@keys.action("/keys")
async def create(view: View) -> Shown:
    """Create a key, and show its secret."""
    queues = view.field("queues").replace(",", " ").split()
    lifetime = seconds_of(view.field("expires_in"), "lifetime")
    body = {
        "label": view.field("label"),
        "scopes": [scope for scope in SCOPES if scope in view.form.get("scopes", ())],
        "why": view.why,
        **({"tenant": tenant} if (tenant := view.field("tenant")) else {}),
        **{name: rate for name in RATES if (rate := number_of(view.field(name), name)) is not None},
        **({"queues": queues} if queues else {}),
        **({"expires_in": lifetime} if lifetime else {}),
    }
    request = view.field("request")
    made = await view.call(create_key, body=body, headers={"idempotency-key": request} if request else None)
    return Shown("key.html", "New key", {"key": made, "overlap": None})


@keys.action("/keys/{key}/rotate")
async def rotate(view: View) -> Shown:
    """Give a key a new secret, and show it."""
    overlap = seconds_of(view.field("overlap", "24h"), "overlap")
    made = await view.call(rotate_key, body={"overlap": overlap, "why": view.why}, key=view.path("key"))
    return Shown("key.html", "New secret", {"key": made, "overlap": overlap})


@keys.action("/keys/{key}/sign-out")
async def sign_out(view: View) -> Done:
    """Sign out everyone who signed in with a key."""
    done = await view.call(sign_out_key, query={"why": view.why}, key=view.path("key"))
    words = "1 login was" if done.signed_out == 1 else f"{done.signed_out} logins were"
    return Done(f"{words} ended.", "keys")


@keys.action("/keys/{key}/revoke")
async def revoke(view: View) -> Done:
    """Revoke a key."""
    key = view.path("key")
    await view.call(revoke_key, query={"why": view.why}, key=key)
    return Done(f"Key {key} is revoked; servers refuse it within a second.", "keys")
