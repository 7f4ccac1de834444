"""The pipeline of docs/handlers.md as one HTTP call: scrape, resize, report, e-mail, webhook."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import pytest
from pypdf import PdfReader

from tests.docs.blocks import DOCS, blocks_of
from tests.handlers.http_sink import Answer, Received, http_sink
from tests.handlers.pictures import opened, picture
from tests.handlers.smtp_server import mail_server
from tests.servers.process import free_port
from tests.shells.cli.processes import ask, until
from windlass.alerts import verify_signature

pytestmark = pytest.mark.system

SECRET = "whsec_d2luZGxhc3MgaG9sZHMgaXRzIHRvbmd1ZSE="
PAGE = b'<html><body><img class="main" src="/rope.png"></body></html>'


def web(request: Received) -> Answer:
    if request.path == "/ropes":
        return Answer(200, PAGE, {"Content-Type": "text/html"})
    if request.path == "/rope.png":
        return Answer(200, picture(size=(1600, 1200)), {"Content-Type": "image/png"})
    return Answer(204 if request.path == "/hooks" else 404)


@contextmanager
def everything(folder: Path, port: int, **settings: str) -> Iterator[None]:
    """`windlass up --handlers`, without an app, until the end of the block."""
    command = [str(Path(sys.executable).parent / "windlass"), "up", "--handlers", "--port", str(port)]
    environment = {**os.environ, "WINDLASS_ALLOW_ADDRESSES": "127.0.0.1", **settings}
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        started = until(process, "serving")
        assert "ready-made handlers: send_email, resize_image" in "".join(started)
        yield
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=20)
        assert process.returncode == 0, log
    finally:
        process.kill()
        process.wait()


def test_the_pipeline_of_the_docs_in_one_request(tmp_path: Path) -> None:
    (written,) = [block.text for block in blocks_of(DOCS / "handlers.md") if block.info == "pipeline"]
    port = free_port()
    with http_sink(route=web) as site, mail_server() as mail:
        email = {"SENDER": "shop@example.org", "SMTP": mail.url, "STARTTLS": "never"}
        settings = {f"WINDLASS_HANDLERS_EMAIL_{name}": value for name, value in email.items()}
        settings |= {"WINDLASS_HANDLERS_WEBHOOKS_SECRET": SECRET, "WINDLASS_HANDLERS_PAGES_PAUSE": "0"}
        with everything(tmp_path, port, **settings):
            made = ask(port, "/tasks", json.loads(written.replace("https://example.org", site.url)))
            ended = [ask(port, f"/tasks/{one}?wait=25") for one in (made["id"], *made["following"])]
            examples = ask(port, "/openapi.json")["paths"]["/tasks"]["post"]["requestBody"]["content"]

    assert [one["state"] for one in ended] == ["completed"] * 5, [one["error"] for one in ended]
    assert {"send_email", "generate_report"} <= {*examples["application/json"]["examples"]}
    files = [opened((tmp_path / "windlass-files" / one["file"]).read_bytes()) for one in ended[1]["result"]]
    assert [(one.format, one.size) for one in files] == [("WEBP", (800, 600)), ("WEBP", (200, 200))]
    (message,) = mail.accepted
    (attached,) = message.message.iter_attachments()
    assert attached.get_filename() == ended[2]["result"]["name"]
    text = PdfReader(BytesIO(attached.get_content())).pages[0].extract_text()
    assert ended[1]["result"][0]["file"][-20:] in text.replace("\n", "")
    hook = site.received[-1]
    assert verify_signature(SECRET, dict(hook.headers), hook.body)
    assert json.loads(hook.body)["data"] == ended[3]["result"]
