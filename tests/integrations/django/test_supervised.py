"""`manage.py windlass worker --workers`: processes that manage.py did not start find the project's tasks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FILES = {
    "manage.py": """
import os, sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
""",
    "settings.py": """
import django

SECRET_KEY = "x"
INSTALLED_APPS = ["windlass.integrations.django", "shop"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": "db.sqlite3",
        "OPTIONS": {"transaction_mode": "IMMEDIATE"} if django.VERSION >= (5, 1) else {},
    }
}
USE_TZ = True
""",
    "shop/__init__.py": "",
    "shop/tasks.py": """
from windlass.integrations.django import app

@app.task(name="ship")
def ship(order_id: int) -> int:
    return order_id
""",
}


@pytest.mark.full
@pytest.mark.system
def test_supervised_workers_run_the_tasks_of_a_project(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    clean = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}

    def manage(*arguments: str) -> str:
        command = [sys.executable, "manage.py", *arguments]
        ran = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=50, env=clean, check=False
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    manage("migrate")
    task_id = manage("windlass", "enqueue", "ship", '{"order_id": 7}').strip()
    manage("windlass", "worker", "--workers", "2", "--drain")
    assert '"state": "completed"' in manage("windlass", "tasks", "show", task_id, "--json")
