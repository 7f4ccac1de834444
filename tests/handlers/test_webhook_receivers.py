"""The receiver in JavaScript that examples/ has accepts what deliver_webhook signs, and nothing else."""

import json
import subprocess
import time

from tests.docs.blocks import ROOT
from windlass.alerts import sign

SECRET = "whsec_d2luZGxhc3MgaG9sZHMgaXRzIHRvbmd1ZSE="
OTHER = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
PROGRAM = """
import {{ isGenuine }} from "{path}";
const cases = JSON.parse(process.argv[1]);
console.log(JSON.stringify(cases.map(([secret, headers, body]) => isGenuine(secret, headers, body))));
"""


def test_the_javascript_receiver_tells_genuine_from_forged() -> None:
    now = int(time.time())
    signed = sign(SECRET, b'{"n":1}', message_id="a", at=now)
    both = sign([OTHER, SECRET], b"{}", message_id="a", at=now)
    cases = [
        (True, SECRET, signed, '{"n":1}'),
        (True, SECRET, both, "{}"),
        (False, OTHER, signed, '{"n":1}'),
        (False, SECRET, signed, '{"n":2}'),
        (False, SECRET, {**signed, "webhook-id": "b"}, '{"n":1}'),
        (False, SECRET, {**signed, "webhook-timestamp": "x"}, '{"n":1}'),
        (False, SECRET, sign(SECRET, b"{}", message_id="a", at=now - 400), "{}"),
        (False, SECRET, {**signed, "webhook-signature": "v1, v2,abc v1"}, '{"n":1}'),
        (False, SECRET, {}, "{}"),
    ]
    program = PROGRAM.format(path=ROOT / "examples" / "javascript" / "webhook.mjs")
    given = json.dumps([case[1:] for case in cases])
    done = subprocess.run(
        ["node", "--input-type=module", "-e", program, given],
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip

    assert json.loads(done.stdout) == [case[0] for case in cases]
