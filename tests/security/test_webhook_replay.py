"""Forged and replayed webhooks: what was changed, is old, or was signed by others is not genuine.

Incoming by `verify_signature`, outgoing by what deliver_webhook sends in each attempt.
"""

import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import timedelta
from hashlib import sha256
from itertools import product
from typing import Any

import pytest

from tests.handlers.http_sink import Answer, http_sink
from tests.handlers.runs import new_app
from tests.security.probes import ENOUGH
from windlass import InvalidOption, State, alerts, handlers
from windlass.alerts import sign, verify_signature
from windlass.testing.harness import harness

AT = 1_790_000_000
BODY = b'{"type":"order.paid","data":{"amount":100}}'
ID = "msg_1"
SECRETS = [f"whsec_{b64encode(bytes([n]) * 32).decode()}" for n in range(1, 5)]
SECRET, OTHER, OLD, NEW = SECRETS


def mac(key: bytes, text: bytes) -> str:
    return b64encode(hmac.new(key, text, sha256).digest()).decode()


def signed(**changes: str | None) -> dict[str, str]:
    headers = sign(SECRET, BODY, message_id=ID, at=AT)
    given = {name.replace("_", "-"): value for name, value in changes.items()}
    return {name: value for name, value in (headers | given).items() if value is not None}


GENUINE = sign(SECRET, BODY, message_id=ID, at=AT)["webhook-signature"]
KEY = b64decode(SECRET.removeprefix("whsec_"))
TEXT = f"{ID}.{AT}.".encode() + BODY


VALUE = GENUINE.removeprefix("v1,")
SIGNATURES = [
    "",
    " ",
    "v1",
    "v1,",
    ",",
    "v1,,",
    "v2," + VALUE,
    "v1a," + VALUE,
    "V1," + VALUE,
    VALUE,
    f"v1 ,{VALUE}",
    f"v1, {VALUE}",
    f"v1={VALUE}",
    f"{GENUINE},",
    f"{GENUINE}=",
    GENUINE.rstrip("="),
    f"v1,{VALUE.swapcase()}",
    f"v1,{VALUE[::-1]}",
    f"v1,{b64decode(VALUE).hex()}",
    f"v1,{VALUE.replace('+', '-').replace('/', '_')}x",
    f"v1;{VALUE}",
    f"\u200b{GENUINE}",
    f"v1,{mac(b'', TEXT)}",
    f"v1,{mac(SECRET.encode(), TEXT)}",
    f"v1,{mac(KEY, BODY)}",
    f"v1,{mac(KEY, TEXT + b' ')}",
    f"v1,{mac(KEY, b'.' + TEXT)}",
    f"v1,{mac(KEY, f'{AT}.{ID}.'.encode() + BODY)}",
    "v1," + "A" * 44,
    "v1," * 500,
    f"v1,{sha256(TEXT).hexdigest()}",
    f"v1,{b64encode(sha256(KEY + TEXT).digest()).decode()}",
    "None",
    "null",
    "v1,\x00",
    *(f"v1,{VALUE[:n]}" for n in range(0, 44, 4)),
    *(f"v1,{VALUE[:n]}A{VALUE[n + 1 :]}" for n in range(0, 42, 3) if VALUE[n] != "A"),
    "v1," + VALUE.translate({ord(c): 0x400 + ord(c) for c in "abc"}),
    (f"v1,{mac(b'x', TEXT)} " * 60),
    GENUINE + " " * 5_000,
]
IDS = [
    "",
    "msg_2",
    "msg_1 ",
    " msg_1",
    "MSG_1",
    "msg_1\n",
    "msg.1",
    f"{ID}.{AT}",
    "msg_1\x00",
    "m\u00e9",
    "x" * 300,
    "msg_\uff11",
]
TIMES = [str(AT + n) for n in (-1, 1, 300, -300)] + [
    "",
    "0",
    "-1",
    f"{AT}.0",
    f" {AT}",
    f"{AT}\n",
    f"+{AT}",
    f"0{AT}",
    "1e9",
    "nan",
    "inf",
    "9" * 12,
    "9" * 5_000,
    hex(AT),
    str(AT * 1_000),
    "\uff11" * 10,
    f"{AT}_0",
    "now",
    "None",
]
BODIES = [
    b"",
    BODY + b" ",
    b" " + BODY,
    BODY[:-1],
    BODY.replace(b"100", b"1000"),
    BODY.replace(b":", b": "),
    BODY + b"\n",
    BODY[::-1],
    b"\xef\xbb\xbf" + BODY,
    BODY.upper(),
    BODY.decode().encode("utf-16"),
    BODY + BODY,
    b".".join([BODY, BODY]),
    b"\x00" + BODY,
    *(bytes([*BODY[:n], BODY[n] ^ 1, *BODY[n + 1 :]]) for n in range(len(BODY))),
]
LATER = [301.0, 3_600.0, 86_400.0, -301.0, -86_400.0, 1e12, float("inf"), float("-inf"), float("nan")]
NAMES = ["webhook-id", "webhook-timestamp", "webhook-signature"]
OTHERS = [("X-", ""), ("", "s"), ("webhook_", ""), (" ", ""), ("", " "), ("\u200b", "")]
FORGED: list[tuple[Mapping[str, Any], bytes, float]] = [
    *((signed(webhook_signature=one), BODY, AT) for one in SIGNATURES),
    *((signed(webhook_id=one), BODY, AT) for one in IDS),
    *((signed(webhook_timestamp=one), BODY, AT) for one in TIMES),
    *((signed(), one, AT) for one in BODIES),
    *((signed(), BODY, AT + one) for one in LATER),
    *(({key: value for key, value in signed().items() if key != name}, BODY, AT) for name in NAMES),
    *((signed() | {name.title(): value}, BODY, AT) for name, value in product(NAMES, ["", GENUINE])),
    *(
        (
            {f"{before}{key}{after}" if key == name else key: value for key, value in signed().items()},
            BODY,
            AT,
        )
        for name, (before, after) in product(NAMES, OTHERS)
    ),
    *((signed() | {name: value}, BODY, AT) for name, value in product(NAMES, [None, 1, b"x", [GENUINE]])),
    # The bytes that were signed, cut elsewhere.
    (signed(webhook_id="msg_1", webhook_timestamp=str(AT)[:-1]), str(AT)[-1:].encode() + b"." + BODY, AT),
    (signed(webhook_id=f"{ID}.{AT}", webhook_timestamp=str(AT)), BODY, AT),
    (signed(webhook_timestamp="1"), f"{AT}.".encode() + BODY, 1),
]


def test_the_corpus_is_large() -> None:
    assert len(FORGED) >= ENOUGH


def test_nothing_forged_or_replayed_is_genuine() -> None:
    through = [one for one in FORGED if verify_signature(SECRET, one[0], one[1], now=one[2])]
    assert through == []
    assert verify_signature(SECRET, signed(), BODY, now=AT)  # the control


def test_a_secret_that_was_rotated_out_is_no_longer_one() -> None:
    """While both are known either is enough, in any order; then only the new one."""
    by = {name: sign(name, BODY, message_id=ID, at=AT) for name in SECRETS}
    both = sign([OLD, NEW], BODY, message_id=ID, at=AT)
    for known in ([OLD], [NEW], [OLD, NEW], [NEW, OLD], f"{OLD} {NEW}", f"{NEW},{OLD}"):
        names = known if isinstance(known, list) else known.replace(",", " ").split()
        assert [name for name in SECRETS if verify_signature(known, by[name], BODY, now=AT)] == sorted(
            names, key=SECRETS.index
        )
        assert verify_signature(known, both, BODY, now=AT)
    assert not verify_signature([SECRET, OTHER], both, BODY, now=AT)
    mixed = f"{by[OTHER]['webhook-signature']} v2,x {by[NEW]['webhook-signature']}"
    assert verify_signature(NEW, signed(webhook_signature=mixed), BODY, now=AT)
    assert not verify_signature(SECRET, signed(webhook_signature=mixed), BODY, now=AT)


@pytest.mark.parametrize(
    "secret", ["", " ", "whsec_", "whsec_!!", "short", None, [], [SECRET, ""], b"x" * 32, "whsk_" + "a" * 40]
)
def test_without_a_secret_nothing_is_judged(secret: Any) -> None:
    with pytest.raises(InvalidOption):
        verify_signature(secret, signed(), BODY, now=AT)


def test_every_signature_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each given one with each secret, also after a match, so that time tells nothing."""
    compared: list[tuple[Any, Any]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    class Watched:
        new = staticmethod(hmac.new)
        compare_digest = staticmethod(compare)

    monkeypatch.setattr(alerts, "hmac", Watched)
    for signature in (GENUINE, f"v1,x {GENUINE}", f"{GENUINE} v1,x", "v1,x v1,y"):
        compared.clear()
        verify_signature([SECRET, OTHER], signed(webhook_signature=signature), BODY, now=AT)
        assert len(compared) == 2 * signature.count("v1,")


async def test_each_attempt_is_signed_anew_under_one_id() -> None:
    """A receiver drops repeats by their id; what was recorded is not genuine later, nor with another body."""
    app = new_app()
    with http_sink(Answer(503), Answer(503), Answer(204)) as web, harness(app) as world:
        send = app.include(handlers.Webhooks(secret=f"{OLD} {NEW}"))
        tasks = [await send.aenqueue(endpoint=web.url, body={"n": n}) for n in range(2)]
        for _ in range(4):
            await world.arun_until_idle(raise_errors=False)
            world.clock.advance(timedelta(hours=1))
        states = [await one.state() for one in tasks]
        await app.close()

    assert states == [State.COMPLETED] * 2
    received = [(dict(one.headers.items()), one.body) for one in web.received]
    assert len(received) == 4
    assert {headers["webhook-id"] for headers, _ in received} == {one.id for one in tasks}
    for headers, body in received:
        for secret in (OLD, NEW):
            assert verify_signature(secret, headers, body)
        assert not verify_signature(SECRET, headers, body)
        sent_at = int(headers["webhook-timestamp"])
        assert not verify_signature(NEW, headers, body, now=sent_at + 301)
        assert [verify_signature(NEW, headers, other) for _, other in received if other != body].count(
            True
        ) == 0
