"""What is in ops/ fits what windlass tells: every metric exists, promtool passes it, the JSON is current."""

import asyncio
import json
import re
import runpy
import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.blocks import DOCS, ROOT, blocks_of
from tests.loops.workers import drained, eventually, working
from windlass import App, Retention
from windlass._http.web.refusal import Reason

OPS = ROOT / "ops"
RULES = OPS / "prometheus" / "alerts.yml"
SCRIPT = runpy.run_path(str(OPS / "dashboard.py"))

_METRIC = re.compile(r"\b(windlass_[a-z_]+)")


def promtool(*arguments: str, stdin: bytes | None = None) -> "subprocess.CompletedProcess[bytes]":
    """Run promtool; without it the test fails, for a rule that nobody has checked is no rule."""
    program = shutil.which("promtool")
    if program is None:
        pytest.fail("promtool is not installed; run: make servers", pytrace=False)
    return subprocess.run(
        [program, *arguments], cwd=RULES.parent, input=stdin, capture_output=True, timeout=50, check=False
    )


async def exposition() -> bytes:
    """From a real run: tasks, worker, keeper, a limit, a quota, a schedule, an alert; and a server's own."""
    app = App("memory://")
    metrics = app.metrics()
    gate = asyncio.Event()

    @app.task(name="held", queue="mail", schedule="1h")
    async def held() -> None:
        await gate.wait()

    app.limit("held", type="held", running=3)
    app.alert("any")
    async with working(app, keeper=True) as worker:
        metrics.meter.refusals(Reason)
        metrics.meter.slots(worker.settings.slots, lambda: len(worker.held))
        await held.aenqueue()
        await eventually(lambda: len(worker.held))
        gate.set()
    await held.aenqueue()
    await drained(app)
    await app.operator.prune(Retention(completed=timedelta(0)))
    await held.aenqueue()
    quota = await app.operator.quotas.set("acme", tasks=5)
    metrics.meter.quota_exceeded(quota.name)
    use = {quota.name: quota}, await app.operator.quotas.uses()
    return (await metrics.exposition(quotas=lambda: use))[0]


@pytest.fixture(scope="module")
def told() -> bytes:
    return asyncio.run(exposition())


def series(told: bytes) -> set[str]:
    """The names of all samples."""
    return {line.partition("{")[0].partition(" ")[0] for line in told.decode().splitlines() if line[0] != "#"}


def expressions(node: Any) -> Iterator[str]:
    """Every query in a dashboard."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in {"expr", "query"} and isinstance(value, str):
                yield value
            else:
                yield from expressions(value)
    elif isinstance(node, list):
        for one in node:
            yield from expressions(one)


def test_every_metric_in_ops_exists(told: bytes) -> None:
    rules = [line for line in RULES.read_text().splitlines() if "alert:" not in line]
    queries = [*expressions(SCRIPT["drawn"]()), *rules]
    named = {name for query in queries for name in _METRIC.findall(query)}

    assert len(named) > 15
    assert named <= series(told)


def test_every_metric_is_watched_and_explained(told: bytes) -> None:
    families = set(re.findall(r"^# TYPE (windlass_\w+)", told.decode(), re.MULTILINE))
    page = (DOCS / "metrics.md").read_text()
    dashboard = (OPS / "grafana" / "windlass.json").read_text()

    assert {family for family in families if f"`{family}`" not in page} == set()
    assert {family for family in families if family not in dashboard} == set()
    assert set(re.findall(r"^\| `(windlass_\w+)`", page, re.MULTILINE)) == families


def test_every_alert_is_explained_and_says_what_to_do() -> None:
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    page = (DOCS / "metrics.md").read_text()
    tried = (RULES.parent / "alerts_test.yml").read_text()

    assert 10 <= len(alerts) == len(set(alerts))
    assert not [name for name in alerts if f"`{name}`" not in page]
    assert not [name for name in alerts if name not in tried]
    for field in ("severity:", "summary:", "runbook:"):
        assert RULES.read_text().count(field) == len(alerts)


def test_the_dashboard_is_the_one_that_the_script_makes() -> None:
    assert (OPS / "grafana" / "windlass.json").read_text() == SCRIPT["text"](), "run: python ops/dashboard.py"


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(SCRIPT["text"]())["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_promtool_takes_what_is_told(told: bytes) -> None:
    done = promtool("check", "metrics", stdin=told)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_promtool_finds_fault_with_a_bad_name() -> None:
    assert promtool("check", "metrics", stdin=b"# TYPE tasks_total gauge\ntasks_total 1\n").returncode != 0


def test_promtool_takes_the_rules() -> None:
    done = promtool("check", "rules", RULES.name)

    assert done.returncode == 0, done.stderr.decode()


def test_prometheus_takes_the_configuration_of_the_docs_and_sends_the_key_to_servers_only(
    tmp_path: Path,
) -> None:
    (text,) = [one.text for one in blocks_of(DOCS / "metrics.md") if one.info == "prometheus.yml"]
    key = tmp_path / "windlass.key"
    key.write_text("wl_secret")
    (tmp_path / "alerts.yml").write_text(RULES.read_text())
    file = tmp_path / "prometheus.yml"
    file.write_text(text.replace("/etc/prometheus/windlass.key", str(key)))

    done = promtool("check", "config", str(file))

    assert done.returncode == 0, done.stderr
    jobs = {job["job_name"]: job for job in yaml.safe_load(file.read_text())["scrape_configs"]}
    assert jobs["windlass-server"]["authorization"] == {"credentials_file": str(key)}
    assert "authorization" not in jobs["windlass-workers"]


def test_the_alerts_fire_when_they_should() -> None:
    done = promtool("test", "rules", "alerts_test.yml")

    assert done.returncode == 0, done.stderr.decode()


def test_promtool_parses_every_query_of_the_dashboard(tmp_path: Any) -> None:
    """As recording rules, with Grafana's variables filled in."""
    queries = [
        query
        for query in expressions(SCRIPT["drawn"]())
        if "windlass" in query and "label_values" not in query
    ]
    filled = [
        query.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$queue", ".*")
        for query in queries
    ]
    rules = [{"record": f"checked:query_{number}", "expr": query} for number, query in enumerate(filled)]
    file = tmp_path / "queries.yml"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))  # JSON is YAML

    done = promtool("check", "rules", str(file))

    assert len(queries) > 20
    assert done.returncode == 0, done.stderr.decode()
