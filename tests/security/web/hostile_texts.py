"""Texts that run a script where they are not escaped, each in its own way; and a store full of them."""

from collections.abc import Iterator
from datetime import timedelta

import msgspec
from msgspec import Struct

from windlass._ids import new_id
from windlass._model.alert import Alert, AlertState
from windlass._model.filter import By, Filter, Page
from windlass._model.key import ApiKey, Scope
from windlass._model.lease import Claim, Heartbeat, ProgressReport
from windlass._model.limit import Limit, Quota
from windlass._model.options import DeclaredType, Defaults
from windlass._model.queue import QueueSettings
from windlass._model.record import DisabledEndpoint, Worker
from windlass._model.schedule import Schedule
from windlass._model.task import Error, NewTask, Progress
from windlass._model.verdict import Bury, Complete, Settlement
from windlass._policy.input.chain import Step, encode_steps
from windlass._stores.memory import MemoryStore

_ELEMENTS = (
    "<script>{}</script>",
    "<img src=x onerror={}>",
    "<svg onload={}>",
    "<body onload={}>",
    "<iframe srcdoc='<script>{}</script>'></iframe>",
    "<details open ontoggle={}><summary>x</summary></details>",
    "<video><source onerror={}></video>",
    "<audio src=x onerror={}>",
    "<object data=x onerror={}></object>",
    "<input autofocus onfocus={}>",
    "<select autofocus onfocus={}>",
    "<textarea autofocus onfocus={}>",
    "<style>@keyframes k{{}}</style><p style='animation:k 1s' onanimationstart={}>",
    "<svg><script>{}</script></svg>",
    "<math><mtext><img src=x onerror={}></mtext></math>",
    "<img src=x onerror=&#x65;val`{}`>",
    "<svg><animate onbegin={} attributeName=x dur=1s>",
    "<marquee onstart={}>",
    "<template><script>{}</script></template>",
    "<noscript><p title='</noscript><img src=x onerror={}>'>",
    "<a href='javascript:{}'>x</a>",
    "<form action='javascript:{}'><button>x</button></form>",
    "<base href='//127.0.0.1:1/'><script>{}</script>",
    "<link rel=stylesheet href='data:text/css,' onload={}>",
    "<meta http-equiv=refresh content='0;url=javascript:{}'>",
    "<div hx-get='x' hx-trigger='load' hx-on:load='{}'></div>",
    "<div hx-sse:connect='x' hx-on::before='{}'></div>",
    "<button popovertarget=x onclick={}>x</button>",
    "<xss contenteditable autofocus tabindex=1 onfocus={}>",
    "<embed src='javascript:{}'>",
    "<IMG SRC=x oNeRrOr={}>",
    "<svg/onload={}//",
    "<img/src=x/onerror={}/>",
)
_BREAKS = (
    "{}",
    '">{}',
    "'>{}",
    "</textarea></title></style></script></pre>{}",
    '"]}}]}}-->{}',
    '\\"}}{}<!--',
)
_ATTRIBUTES = (
    '" autofocus onfocus={} x="',
    "' autofocus onfocus={} x='",
    '" onmouseover={} y="',
    "x onfocus={} autofocus tabindex=0",
    "javascript:{}",
    "java\tscript:{}",
    " JaVaScRiPt:{}",
    "data:text/html,<script>{}</script>",
    "vbscript:{}",
    '";{};"',
    "';{};'",
    "`;${{{}}};`",
    "{{{{ constructor.constructor('{}')() }}}}",
    "${{{}}}",
    "</script><script>{}//",
    "\u2028{}\u2029",
    "\r\nevent: trouble\r\ndata: <img src=x onerror={}>\r\n\r\n",
    "%3Cscript%3E{}%3C/script%3E",
    "&lt;script&gt;{}&lt;/script&gt;",
    "\u202e<img src=x onerror={}>",
    "\ufeff<script>{}</script>",
    "\uff1cscript\uff1e{}\uff1c/script\uff1e",
)


def hostile_texts() -> list[str]:
    """All of them; each calls `top.hit` with its number."""
    shapes = [
        shape.format(element) if "{}" in shape else shape
        for number, element in enumerate(_ELEMENTS)
        for shape in (_BREAKS[number % len(_BREAKS)], _BREAKS[(number + 1) % len(_BREAKS)])
    ]
    made = []
    for number, shape in enumerate([*shapes, *_ATTRIBUTES]):
        made.append(shape.replace("{{", "{").replace("}}", "}").replace("{}", f"top.hit({number})"))
    return made


class Names(Struct):
    """What pages are named by, for one text."""

    text: str
    dead: str
    done: str
    running: str
    failure: str
    key: str


async def fill(store: MemoryStore, texts: list[str]) -> Iterator[Names]:
    """Write each text wherever one can be, past all checks, as a program with the database could."""
    await store.open()
    return iter([await _fill(store, number, text) for number, text in enumerate(texts)])


async def _fill(store: MemoryStore, number: int, evil: str) -> Names:
    now, minute, session = await store.now(), timedelta(minutes=1), f"s{number}"
    payload = msgspec.json.encode({evil: [evil, {"deep": evil}], "x": evil})
    step = Step(id=new_id(), type=evil, payload=msgspec.Raw(payload), queue=evil, tenant=evil)
    tasks = []
    for one in range(4):
        task_id = new_id()
        tasks.append(
            NewTask(
                id=task_id,
                root=task_id,
                type=evil,
                queue=evil,
                tenant=evil,
                payload=payload,
                enqueued_by=evil,
                idempotency_key=f"{one} {evil}",
                trace=evil,
                next=encode_steps((step,)),
            )
        )
    await store.enqueue(tasks)
    worker = Worker(name=evil, host=evil, version=evil, queues=(evil,), types=(evil,), slots=4, busy=1)
    await store.heartbeat(Heartbeat(session=session, worker=worker, lease_for=minute, opening=True))
    dead, done, running = await store.claim(Claim(session=session, queues=(evil,), limit=3, number=1))
    error, progress = Error(type=evil, message=evil, traceback=evil), Progress(fraction=0.5, message=evil)
    notes = msgspec.json.encode({evil: evil})
    verdicts = ((dead, Bury(error=error)), (done, Complete(result=payload)))
    told = {"outcome": "failed", "progress": progress, "notes": notes}
    await store.settle([Settlement(lease=one.lease, verdict=verdict, **told) for one, verdict in verdicts])
    report = ProgressReport(running.lease, progress)
    beat = Heartbeat(
        session=session, worker=worker, lease_for=minute, held=(running.lease,), progress=(report,)
    )
    await store.heartbeat(beat)
    by = By(who=evil, why=evil)
    await store.put(QueueSettings(name=evil, paused=True), by)
    await store.put(Limit(name=evil, queue=evil, type=evil, tenant=evil, by="x", running=1), by)
    await store.put(Quota(name=evil, tasks=1_000), by)
    await store.put(
        DisabledEndpoint(name=f"e{number}", endpoint=evil, tenant=evil, task_id=dead.task.id, at=now), by
    )
    await store.put(Alert(name=evil, type=evil, queue=evil, webhook=f"https://h/{evil}"), by)
    await store.put(AlertState(name=evil, raised_at=now, number=1), None)
    await store.put(Schedule(name=evil, type=evil, payload=payload, cron="0 3 * * *", tenant=evil), by)
    await store.put(DeclaredType(name=evil, defaults=Defaults(queue=evil), aliases=(evil,)), by)
    key = ApiKey(
        name=f"k{number:011}",
        label=evil,
        hash="0" * 64,
        scopes=(Scope.READ,),
        created_at=now,
        tenant=evil,
        queues=(evil,),
    )
    await store.put(key, by)
    (found,) = (await store.find(Filter(ids=(dead.task.id,)), Page())).items
    return Names(
        text=evil,
        dead=dead.task.id,
        done=done.task.id,
        running=running.task.id,
        failure=found.failure or "",
        key=key.name,
    )
