"""Write grafana/windlass.json: `python ops/dashboard.py`. Change the panels here, not in Grafana.

Every server exports the gauges of the store, so panels take their `max`; counters of processes are summed.
"""

import json
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent / "grafana" / "windlass.json"

_SOURCE = {"type": "prometheus", "uid": "${source}"}
_WIDTH, _HEIGHT = 24, 8
_TASK = 'job=~"$job", queue=~"$queue"'
_JOB = 'job=~"$job"'


def stat(
    title: str, expr: str, unit: str = "short", *, bad: float | None = None, told: str = ""
) -> dict[str, Any]:
    """Return a panel with one number, red from `bad` on."""
    steps = [{"color": "green", "value": None}]
    if bad is not None:
        steps.append({"color": "red", "value": bad})
    return {
        "type": "stat",
        "title": title,
        "description": told,
        "targets": [_target(expr, "")],
        "fieldConfig": {
            "defaults": {"unit": unit, "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"},
    }


def graph(
    title: str, *series: tuple[str, str], unit: str = "short", stacked: bool = False, told: str = ""
) -> dict[str, Any]:
    """Return a panel with lines over time, from pairs of expression and legend."""
    custom = {"fillOpacity": 10, "showPoints": "never", "stacking": {"mode": "normal" if stacked else "none"}}
    return {
        "type": "timeseries",
        "title": title,
        "description": told,
        "targets": [_target(expr, legend, chr(ord("A") + n)) for n, (expr, legend) in enumerate(series)],
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": custom}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
    }


def rate(metric: str, by: str, more: str = "") -> str:
    """Return the rate of a counter of tasks."""
    return f"sum by ({by}) (rate({metric}{{{_TASK}{more}}}[$__rate_interval]))"


def quantile(share: float, metric: str, by: str, selector: str = _TASK) -> str:
    """Return a quantile of a histogram."""
    buckets = f"sum by (le, {by}) (rate({metric}_bucket{{{selector}}}[$__rate_interval]))"
    return f"histogram_quantile({share}, {buckets})"


def highest(metric: str, by: str, selector: str = _JOB) -> str:
    """Return a gauge of the store, as the maximum over servers."""
    return f"max by ({by}) ({metric}{{{selector}}})"


def _mean(metric: str) -> str:
    total, number = (f"sum(rate({metric}_{part}{{{_JOB}}}[$__rate_interval]))" for part in ("sum", "count"))
    return f"{total} / {number}"


def _target(expr: str, legend: str, letter: str = "A") -> dict[str, Any]:
    return {"refId": letter, "datasource": _SOURCE, "expr": expr, "legendFormat": legend or "__auto"}


READY = f'sum(max by (queue, type) (windlass_tasks{{{_TASK}, state="ready"}}))'
DEAD = f'sum(max by (queue, type) (windlass_tasks{{{_TASK}, state="dead"}}))'
BUSY, FREE = (f'max(windlass_worker_slots{{{_JOB}, state="{state}"}})' for state in ("busy", "free"))

ROWS: list[tuple[str, list[dict[str, Any]]]] = [
    (
        "Are we backed up?",
        [
            stat("Ready tasks", READY, told="Tasks that are due and wait for a slot."),
            stat(
                "Oldest ready task",
                f"max(windlass_oldest_ready_seconds{{{_TASK}}})",
                "s",
                bad=300,
                told="How long the oldest ready task has been due.",
            ),
            stat("Dead letters", DEAD, bad=1, told="List them with windlass dead list."),
            stat("Workers", f"max(windlass_workers{{{_JOB}}})"),
            stat("Busy slots", f"{BUSY} / ({BUSY} + {FREE})", "percentunit", bad=1),
            stat("Keeper", f"max(windlass_keeper_alive{{{_JOB}}})", told="1 while a keeper leads."),
        ],
    ),
    (
        "Queues",
        [
            graph(
                "Tasks by state",
                (f"sum by (state) (max by (queue, type, state) (windlass_tasks{{{_TASK}}}))", "{{state}}"),
                stacked=True,
            ),
            graph(
                "Ready tasks by queue",
                (
                    f'sum by (queue) (max by (queue, type) (windlass_tasks{{{_TASK}, state="ready"}}))',
                    "{{queue}}",
                ),
            ),
            graph(
                "Oldest ready task by queue",
                (highest("windlass_oldest_ready_seconds", "queue", _TASK), "{{queue}}"),
                unit="s",
            ),
            graph(
                "Wait from due to start",
                (quantile(0.5, "windlass_task_wait_seconds", "queue"), "{{queue}} median"),
                (quantile(0.95, "windlass_task_wait_seconds", "queue"), "{{queue}} 95 %"),
                unit="s",
            ),
            graph(
                "Paused or closed, and number of workers",
                (highest("windlass_queue_paused", "queue", _TASK), "{{queue}} paused"),
                (highest("windlass_queue_closed", "queue", _TASK), "{{queue}} closed"),
                (highest("windlass_queue_workers", "queue", _TASK), "{{queue}} workers"),
            ),
            graph(
                "Types without a handler",
                (
                    highest("windlass_tasks_unhandled", "queue, type", _TASK) + " > 0",
                    "{{queue}} {{type}}",
                ),
                told="Pending tasks that no worker of their queue handles. windlass check lists them.",
            ),
            graph(
                "Limits in use",
                (highest("windlass_limit_used_ratio", "limit"), "{{limit}}"),
                unit="percentunit",
                told="At 100 % no more tasks of the limit can start.",
            ),
        ],
    ),
    (
        "Tasks",
        [
            graph(
                "Enqueued, started and ended per second",
                (f"sum(rate(windlass_tasks_enqueued_total{{{_TASK}}}[$__rate_interval]))", "enqueued"),
                (f"sum(rate(windlass_tasks_started_total{{{_TASK}}}[$__rate_interval]))", "started"),
                (rate("windlass_tasks_ended_total", "state"), "{{state}}"),
                unit="ops",
            ),
            graph(
                "Run time by type (95 %)",
                (quantile(0.95, "windlass_task_run_seconds", "type"), "{{type}}"),
                unit="s",
            ),
            graph(
                "Busy slots by type",
                (
                    f"sum by (type) (rate(windlass_task_run_seconds_sum{{{_TASK}}}[$__rate_interval]))",
                    "{{type}}",
                ),
                stacked=True,
                told="Seconds of run time per second: the average number of slots that each type occupies.",
            ),
            graph(
                "Failed attempts by type",
                (rate("windlass_tasks_postponed_total", "type", ', reason="retry"'), "{{type}} retried"),
                (rate("windlass_tasks_ended_total", "type", ', state="dead"'), "{{type}} dead"),
                unit="ops",
            ),
            graph(
                "Postponed by reason",
                (rate("windlass_tasks_postponed_total", "reason"), "{{reason}}"),
                unit="ops",
            ),
            graph(
                "Unblocked, promoted, pruned",
                (f"sum(rate(windlass_tasks_unblocked_total{{{_TASK}}}[$__rate_interval]))", "unblocked"),
                (f"sum(rate(windlass_tasks_promoted_total{{{_JOB}}}[$__rate_interval]))", "promoted"),
                (f"sum(rate(windlass_tasks_pruned_total{{{_TASK}}}[$__rate_interval]))", "pruned"),
                unit="ops",
            ),
            graph(
                "Rescued, lost, replayed, discarded",
                (f"sum(rate(windlass_tasks_rescued_total{{{_TASK}}}[$__rate_interval]))", "rescued"),
                (f"sum(rate(windlass_leases_lost_total{{{_TASK}}}[$__rate_interval]))", "lost"),
                (f"sum(rate(windlass_tasks_replayed_total{{{_TASK}}}[$__rate_interval]))", "replayed"),
                (f"sum(rate(windlass_tasks_discarded_total{{{_TASK}}}[$__rate_interval]))", "discarded"),
                (f"sum(rate(windlass_tasks_expired_total{{{_TASK}}}[$__rate_interval]))", "expired"),
                unit="ops",
            ),
        ],
    ),
    (
        "Workers and store",
        [
            graph("Slots", (BUSY, "busy"), (FREE, "free"), stacked=True),
            graph(
                "Slots by worker",
                (f'sum by (instance) (windlass_slots{{{_JOB}, state="busy"}})', "{{instance}} busy"),
                told="From the metrics of the workers that are scraped.",
            ),
            graph(
                "Handlers that run on after their timeout",
                (highest("windlass_handlers_stuck", "type") + " > 0", "{{type}}"),
                (f"sum(increase(windlass_tasks_stuck_total{{{_TASK}}}[1m]))", "new in a minute"),
                told="The workers' logs have their stacks; windlass workers lists them.",
            ),
            graph(
                "Tasks settled per round trip",
                (
                    _mean("windlass_settle_batch_size"),
                    "average",
                ),
            ),
            graph(
                "Store latency by verb (95 %)",
                (quantile(0.95, "windlass_store_seconds", "verb", _JOB), "{{verb}}"),
                unit="s",
            ),
            graph(
                "Store errors",
                (
                    f"sum by (verb, code) (rate(windlass_store_errors_total{{{_JOB}}}[$__rate_interval]))",
                    "{{verb}} {{code}}",
                ),
                (f"1 - max(windlass_store_up{{{_JOB}}})", "down"),
                unit="ops",
            ),
            graph(
                "Refused requests by reason",
                (
                    f"sum by (reason) (rate(windlass_http_refused_total{{{_JOB}}}[$__rate_interval]))",
                    "{{reason}}",
                ),
                unit="ops",
                told="Without a valid key, or without the right to what they ask for. The server logs them.",
            ),
            graph(
                "Requests beyond a key's rate",
                (
                    f"sum by (rate) (rate(windlass_rate_limited_total{{{_JOB}}}[$__rate_interval]))",
                    "{{rate}}",
                ),
                unit="ops",
            ),
            graph(
                "Storage quotas in use",
                (highest("windlass_quota_used_ratio", "tenant"), "{{tenant}}"),
                unit="percentunit",
                told="At 100 % new tasks of the tenant are refused. * is the fullest of the other tenants.",
            ),
            graph(
                "Stored tasks of tenants with a quota",
                (highest("windlass_tenant_stored_tasks", "tenant"), "{{tenant}}"),
            ),
            graph(
                "Stored bytes of tenants with a quota",
                (highest("windlass_tenant_stored_bytes", "tenant"), "{{tenant}}"),
                unit="decbytes",
            ),
            graph(
                "Requests beyond a quota",
                (
                    f"sum by (tenant) (rate(windlass_quota_refusals_total{{{_JOB}}}[$__rate_interval]))",
                    "{{tenant}}",
                ),
                unit="ops",
            ),
            graph(
                "Raised dead-letter alerts",
                (highest("windlass_alert_raised", "alert") + " > 0", "{{alert}}"),
                told="windlass alerts list shows what each counts.",
            ),
            graph(
                "Late schedules",
                (highest("windlass_schedule_lag_seconds", "schedule") + " > 0", "{{schedule}}"),
                unit="s",
            ),
        ],
    ),
]


def drawn() -> dict[str, Any]:
    """Return the dashboard."""
    return {
        "uid": "windlass",
        "title": "windlass",
        "tags": ["windlass"],
        "schemaVersion": 38,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_sources(), _variable("job", "windlass_build_info"), _queues()]},
        "panels": _panels(),
    }


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        panels.append(
            {
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": _place(0, top, _WIDTH, 1),
            }
        )
        top += 1
        is_stats = row[0]["type"] == "stat"
        across, height = (6, _HEIGHT // 2) if is_stats else (3, _HEIGHT)
        for number, panel in enumerate(row):
            down, right = divmod(number, across)
            width = _WIDTH // across
            place = _place(right * width, top + down * height, width, height)
            panels.append({**panel, "datasource": _SOURCE, "gridPos": place})
        top += -(-len(row) // across) * height
    return [{"id": number, **panel} for number, panel in enumerate(panels, 1)]


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _sources() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variable(name: str, metric: str, more: str = "") -> dict[str, Any]:
    query = f"label_values({metric}{more}, {name})"
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _queues() -> dict[str, Any]:
    return _variable("queue", "windlass_oldest_ready_seconds", f"{{{_JOB}}}")


def text() -> str:
    """Return the contents of the file."""
    return json.dumps(drawn(), indent=2) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
