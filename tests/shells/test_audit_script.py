"""`make audit`: what it makes of advisories and licences. The tools that it calls are stubs here."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.shells.scripts import imported


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    module = imported("audit", monkeypatch)
    for name, folder in (("TOOLS", "tools"), ("BUILD", "build")):
        monkeypatch.setattr(module, name, tmp_path / folder)
        (tmp_path / folder / "bin").mkdir(parents=True)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.delenv("OFFLINE", raising=False)
    return module


@pytest.fixture
def advisories(audit: ModuleType) -> Callable[..., bool]:
    """Check advisories with this output of pip-audit."""

    def check(output: str) -> bool:
        (audit.BUILD / "output").write_text(output)
        stub = audit.TOOLS / "bin/pip-audit"
        stub.write_text(f"#!/bin/sh\ncat {audit.BUILD}/output\n")
        stub.chmod(0o700)
        answer: bool = audit.check_advisories()
        return answer

    return check


def package(name: str, *vulnerabilities: str, **more: Any) -> dict[str, Any]:
    found = [{"id": one, "fix_versions": ["2.0"]} for one in vulnerabilities]
    return {"name": name, "version": "1.0", "vulns": found, **more}


def test_a_known_vulnerability_fails(advisories: Callable[[str], bool], capsys: Any) -> None:
    output = json.dumps({"dependencies": [package("a"), package("b", "CVE-1", "CVE-2")]})

    assert not advisories(output)
    shown = capsys.readouterr().out
    assert "b 1.0: CVE-2, fixed in 2.0" in shown
    assert "2 packages checked, 2 vulnerabilities" in shown


def test_none_passes(advisories: Callable[[str], bool], capsys: Any) -> None:
    output = json.dumps({"dependencies": [package("a"), {"name": "b", "skip_reason": "not found"}]})

    assert advisories(output)
    assert "1 packages are not in the database" in capsys.readouterr().out


@pytest.mark.parametrize("output", ["", '{"dependencies": [{"name": "a", "skip_reason": "not found"}]}'])
def test_an_audit_without_advisories_is_not_one(
    output: str, advisories: Callable[[str], bool], capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not advisories(output)
    assert "NOT CHECKED" in capsys.readouterr().out
    monkeypatch.setenv("OFFLINE", "1")
    assert advisories(output)


def test_what_users_install_is_judged_by_its_licence(audit: ModuleType, capsys: Any) -> None:
    assert audit.check_licences()
    listed = (audit.BUILD / "licences.txt").read_text()
    assert "msgspec" in listed
    assert any(line.startswith("pytest ") and line.endswith("(development)") for line in listed.splitlines())
    assert " 0 to look at" in capsys.readouterr().out


def test_a_licence_that_is_not_permissive_fails(
    audit: ModuleType, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "licence", lambda one: "GPL-3.0-only" if one.name == "msgspec" else "MIT")

    assert not audit.check_licences()
    assert "msgspec: the licence 'GPL-3.0-only'" in capsys.readouterr().out
