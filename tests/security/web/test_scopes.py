"""Scopes as the OpenAPI document names them: every operation with every set of scopes, and its exact refusal.

tests/http/test_auth_matrix.py has each scope alone, bounds, and keys that are wrong, expired or revoked; the
verbs of the store are in tests/http/test_auth.py, the dashboard in tests/dashboard/test_security.py.
"""

from itertools import combinations

import httpx2
import pytest

from tests.examples import FULL
from tests.http.problem import problem
from tests.http.test_auth_matrix import ASKED
from tests.security.web.api_schema import operations
from tests.security.web.two_tenants import TENANT, UNCACHED, Side
from tests.servers.api import ApiServer
from windlass._client.keys import Keys
from windlass._model.key import Scope

SCOPES = [one for one in Scope if one not in (Scope.ADMIN, Scope.OBSERVE)]  # see test_observe_scope.py
SETS = [found for number in range(1, len(SCOPES) + 1) for found in combinations(SCOPES, number)]


@pytest.mark.more
@pytest.mark.timeout(300)
async def test_exactly_the_documented_scope(
    api: ApiServer, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, values in UNCACHED.items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
    side, probes, allowed = Side(api, http, TENANT), 0, 0
    await side.fill(with_others=False)
    document = (await http.get(f"{side.url}/openapi.json")).json()
    for scopes in SETS if FULL else SETS[5::11]:
        side.keys["some"] = (await Keys(side.store).create("some", scopes=scopes)).text
        for name, (method, template, described) in operations(document).items():
            asking = ASKED[name]
            given = {"id": side.own["ready"], "queue": "mail", "tenant": "acme", "name": "n", "key": "0" * 12}
            path = template.format(**given) + asking.query
            sent = {"content": asking.body, "headers": {"content-type": asking.kind}}
            if not isinstance(asking.body, bytes):
                sent = {"json": asking.body} if asking.body is not None else {}
            response = await side.ask(method, path, "some", **sent)
            needed = [scope for one in described["security"] for scope in one["key"]]
            if set(needed) <= set(scopes):
                assert response.status_code not in (401, 403), (name, scopes, response.text)
                assert str(response.status_code) in described["responses"], (name, response.text)
                allowed += 1
            else:
                detail = problem(response, 403, "forbidden")["detail"]
                assert detail == f"this key lacks the scope {needed[0]}", (name, scopes)
                assert "403" in described["responses"]
            probes += 1
    assert probes >= (2_000 if FULL else 200)
    assert 0.1 < allowed / probes < 0.9
