"""`windlass quotas`: list, set and remove; and what `windlass check` says of them."""

import pytest

from .conftest import Run


def test_a_quota_is_set_listed_and_removed(run: Run) -> None:
    made = run("quotas", "set", "acme", "--tasks", "2", "--bytes", "1.5KB", "--why", "its plan")
    others = run("quotas", "set", "*", "--tasks", "4", "--json").row
    for tenant in ("acme", "bob", "bob"):
        run("enqueue", "t", "{}", "--tenant", tenant)
    run("enqueue", "t", "{}")

    rows = run("quotas", "list", "--json").rows
    table = run("quotas", "list").out

    assert made.out == "quota of acme: 2 tasks, 1.5 kB\n"
    assert others == {"tenant": "*", "tasks": 4, "bytes": None, "in_use": []}
    assert [(row["tenant"], row["tasks"], row["bytes"]) for row in rows] == [
        ("*", 4, None),
        ("acme", 2, 1500),
    ]
    assert [(one["tenant"], one["tasks"], one["share"]) for one in rows[0]["in_use"]] == [
        ("bob", 2, 0.5),
        ("", 1, 0.25),
    ]
    assert rows[1]["in_use"] == [{"tenant": "acme", "tasks": 1, "bytes": 2, "share": 0.5}]
    assert [line.split() for line in table.splitlines()] == [
        ["tenant", "tasks", "bytes", "used", "fullest"],
        ["*", "2/4", "4", "B", "50%", "bob", "50%,", "(none)", "25%"],
        ["acme", "1/2", "2", "B/1.5", "kB", "50%"],
    ]
    assert run("quotas", "remove", "acme", "--json").row == {"tenant": "acme", "removed": True}
    assert run("quotas", "remove", "acme").code == 3
    run("quotas", "remove", "*")
    assert "there are no quotas" in run("quotas", "list").err
    audit = [(row["subject"], row["why"]) for row in run("audit", "--json").rows]
    assert ("quota acme", "its plan") in audit
    assert len(audit) == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("acme",), "needs tasks, bytes or both"),
        (("acme", "--tasks", "-1"), "tasks must be from 0"),
        (("acme", "--tasks", "few"), "not a valid integer"),
        (("acme", "--bytes", "much"), "'much' is not a size such as"),
        (("a b", "--tasks", "1"), "is not a valid name"),
    ],
)
def test_what_is_no_quota(arguments: tuple[str, ...], said: str, run: Run) -> None:
    ran = run("quotas", "set", *arguments)
    assert ran.code == 2
    assert said in ran.err


def test_check_warns_of_tenants_that_are_nearly_full(run: Run) -> None:
    run("quotas", "set", "acme", "--tasks", "10")
    run("quotas", "set", "*", "--tasks", "1")
    for tenant, number in (("acme", 8), ("bob", 1)):
        for _ in range(number):
            run("enqueue", "t", "{}", "--tenant", tenant)
    run("enqueue", "t", "{}")

    found = [row["message"] for row in run("check", "--json").rows if row["subject"] == "quotas"]

    assert found == [
        "tasks without a tenant: 100% of the quota is used",
        "tenant bob: 100% of the quota is used",
    ]


def test_keys_are_listed_with_the_quota_of_their_tenant(run: Run) -> None:
    run("keys", "create", "web", "--scope", "enqueue", "--tenant", "acme")
    assert run("keys", "list", "--json").row["quota"] is None
    run("quotas", "set", "acme", "--tasks", "4")
    run("enqueue", "t", "{}", "--tenant", "acme")

    quota = run("keys", "list", "--json").row["quota"]

    assert (quota["tasks"], quota["in_use"][0]["share"]) == (4, 0.25)
    assert "25% used" in run("keys", "list").out
