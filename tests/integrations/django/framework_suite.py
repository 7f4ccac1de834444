"""Run Django's own tests of its task backends on ours: `python -m … SOURCE`, with a source tree of Django 6.

`make django` downloads the tree. Exits with 1 if another set of tests fails than the one that is listed here.
"""

# ruff: noqa: T201 - run by scripts/django

import copy
import logging
import sys
import unittest
from collections.abc import Iterator
from contextlib import ExitStack
from io import StringIO
from typing import Any, ClassVar

import django
from django.conf import settings

_TOTAL = 74
_OTHER_CLASS = "asks for the class of Django's own backend"
_LESS = "asserts that a backend cannot do what this one can"
EXCEPTIONS = {
    "TaskTestCase.test_get_backend": _OTHER_CLASS,
    "TaskTestCase.test_using_correct_backend": _OTHER_CLASS,
    "DummyBackendTestCase.test_using_correct_backend": _OTHER_CLASS,
    "ImmediateBackendTestCase.test_using_correct_backend": _OTHER_CLASS,
    "ImmediateBackendTestCase.test_cannot_get_result": _LESS,
    "ImmediateBackendTestCase.test_cannot_refresh_result": _LESS,
    "ImmediateBackendTestCase.test_cannot_pass_run_after": _LESS,
}

settings.configure(
    USE_TZ=True,
    SECRET_KEY="s" * 50,
    INSTALLED_APPS=["windlass.integrations.django"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    WINDLASS={"IMPORTS": [], "STORE": "memory://", "DATABASE": "default"},
)
django.setup()

from django.test import override_settings  # noqa: E402 - once Django is configured
from django.test.utils import setup_test_environment  # noqa: E402

from windlass.integrations.django import app  # noqa: E402
from windlass.integrations.django.backend import WindlassBackend  # noqa: E402
from windlass.integrations.django.task_results import TaskResultStatus  # noqa: E402
from windlass.integrations.django.test import InMemoryTasks, in_memory  # noqa: E402


class Listed(WindlassBackend):
    """Has what tests use of Django's dummy backend: `results`, and `clear()`, which starts anew."""

    results: ClassVar[list[Any]] = []
    stack: ClassVar = ExitStack()
    tasks: ClassVar[InMemoryTasks]

    def clear(self) -> None:
        self.stack.close()
        self.results.clear()
        Listed.tasks = self.stack.enter_context(in_memory())

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        self.results.append(copy.copy(result))
        return result

    def get_result(self, result_id: str) -> Any:
        # A test marks what `results` has as successful, to see whether a result is read again: run the task.
        if any(one.id == result_id and one.status == TaskResultStatus.SUCCESSFUL for one in self.results):
            self.tasks.run()
        return super().get_result(result_id)


class Immediate(WindlassBackend):
    """Runs each task by a worker when it is enqueued, as Django's immediate backend does."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        interrupts: list[BaseException] = []

        def note(_: object, error: BaseException) -> None:
            if isinstance(error, KeyboardInterrupt):
                interrupts.append(error)

        app.hooks.error_hooks.append(note)
        try:
            with in_memory() as tasks:
                result = super().enqueue(task, args, kwargs)
                tasks.run(raise_errors=False)
                result.refresh()
        finally:
            app.hooks.error_hooks.remove(note)
        if interrupts:
            raise interrupts[0]
        return result


def cases() -> Iterator[type[unittest.TestCase]]:
    """Yield Django's test cases, with our backends in place of its own."""
    from tasks import test_dummy_backend, test_immediate_backend, test_tasks  # in the source tree

    listed = {"BACKEND": f"{__name__}.Listed", "QUEUES": []}
    immediate = {"BACKEND": f"{__name__}.Immediate", "QUEUES": [], "OPTIONS": {"max_attempts": 1}}
    named = {"default": listed | {"QUEUES": ["default", "queue_1"]}, "immediate": immediate}
    missing = {"missing": {"BACKEND": "does.not.exist"}}
    for case, tasks in (
        (test_tasks.TaskTestCase, named | missing),
        (test_dummy_backend.DummyBackendTestCase, {"default": listed}),
        (test_immediate_backend.ImmediateBackendTestCase, {"default": immediate}),
    ):
        yield override_settings(TASKS=tasks)(type(case.__name__, (case,), {}))


def main(source: str) -> int:
    """Run the tests; return 1 if the result is not the expected one."""
    sys.path.insert(0, f"{source}/tests")
    sys.modules[__spec__.name] = sys.modules[__name__]  # the settings name it, and it is run as __main__
    logging.getLogger().addHandler(logging.NullHandler())  # of tasks that are to fail
    setup_test_environment()
    suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromTestCase(case) for case in cases())
    log = StringIO()
    result = unittest.TextTestRunner(log).run(suite)
    failed = {_name(test) for test, _ in [*result.failures, *result.errors]}
    print(f"{result.testsRun - len(failed)} of {result.testsRun} tests of Django {django.__version__} pass")
    for name in sorted(failed & EXCEPTIONS.keys()):
        print(f"  fails as expected: {name} {EXCEPTIONS[name]}")
    if failed == EXCEPTIONS.keys() and result.testsRun == _TOTAL:
        return 0
    print(log.getvalue())
    for name in sorted(failed - EXCEPTIONS.keys()):
        print(f"  FAILED: {name}")
    for name in sorted(EXCEPTIONS.keys() - failed):
        print(f"  PASSED, but is listed as an exception: {name}")
    if result.testsRun != _TOTAL:
        print(f"  there are {result.testsRun} tests, not {_TOTAL}")
    return 1


def _name(test: Any) -> str:
    """Return the class and method of a test, or of the test that a subtest belongs to."""
    return ".".join(getattr(test, "test_case", test).id().split(".")[-2:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
