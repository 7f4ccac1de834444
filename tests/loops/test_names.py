"""Names of task types: the same in the program that declares them, and in a worker that imports it."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from windlass._handler.names import function_name

pytestmark = pytest.mark.system

SCRIPT = """
    from windlass import App

    app = App("sqlite:///shop.db")

    @app.task
    def add(a: int) -> None:
        print(f"ran {add.name}\\n", end="", flush=True)

    if __name__ == "__main__":
        @app.task
        def late() -> None: ...

        print(add.name, late.name)
        add.enqueue(a=1)
        add.enqueue_many([{"a": 2}])
"""
KNOWN_ONLY_HERE = "the task type add is named after its function only"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script as main1.py, in a package and its subpackage, and in a folder that is none."""
    for place in ("main1.py", "shop/tasks.py", "shop/__main__.py", "shop/mail/send.py", "jobs/main2.py"):
        file = tmp_path / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(SCRIPT))
    for package in ("shop", "shop/mail"):
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "strange name.py").write_text(textwrap.dedent(SCRIPT))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def python(*arguments: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=True)


@pytest.mark.parametrize(
    ("started", "module"),
    [
        (["main1.py"], "main1"),
        (["-m", "main1"], "main1"),
        (["-m", "shop.tasks"], "shop.tasks"),
        (["shop/tasks.py"], "shop.tasks"),
        (["-m", "shop"], "shop.__main__"),
        (["shop"], "shop.__main__"),
        (["shop/mail/send.py"], "shop.mail.send"),
        (["jobs/main2.py"], "main2"),
        (["-m", "jobs.main2"], "jobs.main2"),
        (["-m", "cProfile", "-o", "profile", "main1.py"], "main1"),
    ],
    ids=" ".join,
)
def test_a_worker_runs_what_a_program_enqueued_that_was_run_directly(
    folder: Path, started: list[str], module: str
) -> None:
    ran = python(*started)

    assert ran.stdout.split() == [f"{module}.add", f"{module}.late"]
    (hint,) = ran.stderr.splitlines()
    assert "no live worker serves queue default" in hint
    worker = ["-m", "windlass", "worker", f"{module}:app", "--drain"]
    if module == "main2":  # from where it is importable
        worker += ["--store", f"sqlite:///{folder}/shop.db"]
    worked = subprocess.run(
        [sys.executable, *worker],
        cwd=folder / "jobs" if module == "main2" else folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert worked.stdout == f"ran {module}.add\n" * 2


@pytest.mark.parametrize(
    "started", [["-"], ["-c", textwrap.dedent(SCRIPT)], ["strange name.py"]], ids=["stdin", "-c", "file"]
)
def test_a_program_that_is_no_module_says_so_when_it_enqueues(folder: Path, started: list[str]) -> None:
    ran = python(*started, stdin=textwrap.dedent(SCRIPT))

    assert ran.stdout.split() == ["add", "late"]
    assert ran.stderr.count(KNOWN_ONLY_HERE) == 1
    assert "@app.task(name=…)" in ran.stderr


@pytest.mark.parametrize(
    ("store", "option"),
    [("memory://", ""), ("sqlite:///shop.db", "(name='shop.add')")],
    ids=["memory", "name"],
)
def test_nothing_is_said_where_the_name_does_not_matter(folder: Path, store: str, option: str) -> None:
    program = SCRIPT.replace("sqlite:///shop.db", store).replace("@app.task\n", f"@app.task{option}\n", 1)

    assert KNOWN_ONLY_HERE not in python("-", stdin=textwrap.dedent(program)).stderr


def test_processes_of_multiprocessing_have_the_same_names(folder: Path) -> None:
    (folder / "pool.py").write_text(
        textwrap.dedent("""
            from multiprocessing import get_context
            from windlass import App

            app = App("memory://")

            @app.task
            def add() -> None: ...

            def name(_: int) -> str:
                return add.name

            if __name__ == "__main__":
                with get_context("spawn").Pool(1) as pool:
                    print(add.name, *pool.map(name, [1]))
        """)
    )

    assert python("pool.py").stdout.split() == ["pool.add", "pool.add"]
    assert python("-m", "pool").stdout.split() == ["pool.add", "pool.add"]


def test_a_script_may_be_imported_by_its_own_modules(folder: Path) -> None:
    """Then all of it is declared twice: by the program, and by the module."""
    (folder / "base.py").write_text("from windlass import App\napp = App('sqlite:///shop.db')\n")
    (folder / "other.py").write_text("from main import add\n")
    (folder / "main.py").write_text(
        textwrap.dedent("""
            from base import app

            @app.task(schedule="1h", aliases=("plus",))
            def add() -> None: ...

            import other

            if __name__ == "__main__":
                print(*app.types)
                add.enqueue()
        """)
    )

    assert python("main.py").stdout == "main.add\n"


def test_what_has_no_module_of_its_own_is_named_after_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    class Greet:
        def __call__(self) -> None: ...

    Greet.__module__ = "__main__"
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/srv/greet.py", raising=False)

    assert function_name(Greet()).startswith("greet.")
