"""A client of the API's resources, as a program in any language would use it."""

from typing import Any

import httpx2

from tests.http.problem import assert_safe

JSON = {"content-type": "application/json"}


class Api:
    """The API at one address, asked with one key or none."""

    def __init__(self, http: httpx2.AsyncClient, url: str, key: str | None = None) -> None:
        self.http = http
        self.url = url
        self.headers = {} if key is None else {"authorization": f"Bearer {key}"}

    def by(self, key: str | None) -> "Api":
        """The same, asked with another key."""
        return Api(self.http, self.url, key)

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        """Ask, with a value or with the very bytes of a body; every answer has the headers that are safe."""
        told = self.headers | {name.replace("_", "-"): one for name, one in headers.items()}
        if isinstance(body, bytes):
            told = JSON | told
            response = await self.http.request(method, f"{self.url}{path}", content=body, headers=told)
        else:
            response = await self.http.request(method, f"{self.url}{path}", json=body, headers=told)
        assert_safe(response)
        return response

    async def good(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Ask what must be answered."""
        response = await self(method, path, body, **headers)
        assert response.status_code in (200, 201, 202, 204), response.text
        return response.json() if response.content else None

    async def enqueue(self, **task: Any) -> str:
        """A task; its id."""
        made: str = (await self.good("POST", "/tasks", {"type": "t", **task}))["id"]
        return made

    async def session(self, *queues: str, **worker: Any) -> str:
        """A session of a worker."""
        said = {"name": "w", "queues": list(queues) or ["default"], **worker}
        opened: str = (await self.good("POST", "/work/sessions", said))["session"]
        return opened

    async def claim(self, session: str, number: int, *queues: str, **more: Any) -> list[dict[str, Any]]:
        """What a claim brings."""
        wanted = {"session": session, "number": number, "queues": list(queues) or ["default"], **more}
        found: list[dict[str, Any]] = (await self.good("POST", "/work/claim", wanted))["tasks"]
        return found

    async def settle(self, *tasks: dict[str, Any]) -> list[str]:
        """The receipts."""
        settled = await self.good("POST", "/work/settle", {"tasks": list(tasks)})
        return [one["receipt"] for one in settled["tasks"]]

    async def beat(self, session: str, *queues: str, **more: Any) -> httpx2.Response:
        """A sign of life."""
        worker = {"name": "w", "queues": list(queues) or ["default"]}
        return await self("POST", "/work/heartbeat", {"session": session, "worker": worker, **more})

    async def die(self, **task: Any) -> str:
        """A task that has died; its id."""
        queue = task.get("queue", "default")
        made = await self.enqueue(**{"priority": 100, **task})
        session = await self.session(queue)
        (claimed,) = await self.claim(session, 1, queue)
        assert claimed["id"] == made
        ended = {"outcome": "failed", "fatal": True, "error": {"type": "Boom", "message": "it broke"}}
        assert await self.settle(lease(claimed) | ended) == ["applied"]
        return made


def lease(claimed: dict[str, Any]) -> dict[str, Any]:
    """What settles a claimed task."""
    return {"id": claimed["id"], "fence": claimed["fence"]}
