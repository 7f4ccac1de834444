"""Every mistake made in a script is noticed by the conformance suite, or by the tests of this store."""

import os
import sys
from subprocess import PIPE, STDOUT, run

import pytest

from tests.stores.redis.lua_mistakes import LUA_MISTAKES, LuaMistake
from windlass._stores.redis.connection import client as scripts

SECONDS = 300
FAILED = 1  # the status of pytest if tests failed


@pytest.mark.parametrize("mistake", LUA_MISTAKES.values(), ids=LUA_MISTAKES)
def test_a_mistake_replaces_one_piece_of_a_script(mistake: LuaMistake) -> None:
    assert scripts._read(mistake.file).count(mistake.right) == 1


@pytest.mark.full
@pytest.mark.system
@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("name", LUA_MISTAKES)
def test_a_mistake_is_noticed(name: str) -> None:
    only = "(valkey or redis) and not cluster and not http and not mistake"
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider"]
    command += ["-p", "tests.stores.redis.lua_mistakes", "-m", "not full", "-k", only]
    tests = ["tests/stores/redis", "tests/stores/test_conformance.py"]
    environment = {key: value for key, value in os.environ.items() if key != "WINDLASS_TESTS"}  # the sample
    environment["WINDLASS_LUA_MISTAKE"] = name
    done = run(
        [*command, *tests],
        check=False,
        env=environment,
        stdout=PIPE,
        stderr=STDOUT,
        text=True,
        timeout=SECONDS,
    )

    assert done.returncode == FAILED, done.stdout[-2000:]
