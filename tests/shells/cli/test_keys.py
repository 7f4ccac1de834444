"""`windlass keys`: create, list and revoke."""

from pathlib import Path

import pytest

from windlass._policy import api_key

from .conftest import Run


def _everything_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("windlass.db*") if file.is_file())


def test_a_key_is_created_listed_and_revoked(run: Run, folder: Path) -> None:
    made = run("keys", "create", "the shop", "--scope", "enqueue", "--scope", "read", "--expires", "30d")
    sent = api_key.parse_key(made.out.strip())
    assert sent is not None, made.err
    table = run("keys", "list").out
    listed = run("keys", "list", "--json").row

    assert made.out == f"{sent.text}\n"
    assert sent.secret not in table + str(listed) + made.err
    assert sent.secret.encode() not in _everything_in(folder)
    assert api_key.hash_secret(sent.secret).encode() in _everything_in(folder)
    assert (listed["id"], listed["label"], listed["scopes"]) == (sent.id, "the shop", ["enqueue", "read"])
    assert (listed["tenant"], listed["queues"]) == (None, None)
    assert listed["expires_at"] > listed["created_at"]
    assert "hash" not in listed
    assert table.splitlines()[0].split() == [
        "id", "label", "scopes", "tenant", "queues", "rate", "tasks", "bytes", "expires", "last", "used",
    ]  # fmt: skip
    assert table.splitlines()[1].startswith(f"{sent.id}  the shop  enqueue, read")

    assert run("keys", "revoke", sent.id).out == f"revoked {sent.id}\n"
    assert run("keys", "list", "--json").rows == []
    assert "windlass keys create" in run("keys", "list").err
    revoked = run("keys", "list", "--all", "--json").row
    assert (revoked["id"], revoked["revoked_at"] is None) == (sent.id, False)
    assert "revoked" in run("keys", "list", "--all").out.splitlines()[0]
    assert api_key.hash_secret(sent.secret) not in str(revoked)
    again = run("keys", "revoke", sent.id)
    assert (again.code, f"key '{sent.id}' is already revoked" in again.err) == (3, True)


def test_a_rotation_prints_another_text_of_the_same_key(run: Run) -> None:
    made = run("keys", "create", "ada", "--scope", "work", "--tenant", "acme", "--json").row
    rotated = run("keys", "rotate", made["id"], "--overlap", "7d", "--why", "quarterly", "--json").row

    assert rotated["key"] != made["key"]
    same = ("id", "label", "scopes", "tenant", "created_at")
    assert {name: rotated[name] for name in same} == {name: made[name] for name in same}
    assert rotated["former_expires_at"] > rotated["rotated_at"] > made["created_at"]
    line = run("audit", "--json").rows[0]
    assert (line["action"], line["subject"], line["why"]) == ("rotate", f"key {made['id']}", "quarterly")

    plain = run("keys", "rotate", made["id"], "--overlap", "0s")
    assert api_key.parse_key(plain.out.strip()) is not None
    assert run("keys", "list", "--json").row["former_expires_at"] is None
    run("keys", "revoke", made["id"])
    refused = run("keys", "rotate", made["id"])
    assert (refused.code, refused.out) == (3, "")
    assert "is revoked; create another" in refused.err


def test_creating_a_key_again_fails_and_names_the_first(run: Run) -> None:
    words = ("keys", "create", "ci", "--scope", "enqueue", "--key", "deploy 7")
    first = run(*words, "--json").row
    again, other = run(*words), run(*words, "--rate", "5")

    assert (again.code, again.out) == (3, "")
    assert f"windlass keys rotate {first['id']}" in again.err
    assert again.err.startswith("error[duplicate-key]")
    assert (other.code, "error[idempotency-conflict]" in other.err) == (3, True)
    assert [key["id"] for key in run("keys", "list", "--all", "--json").rows] == [first["id"]]


def test_json_has_the_key_and_its_scopes(run: Run) -> None:
    bounds = (
        "--tenant",
        "acme",
        "-q",
        "mail",
        "-q",
        "sms",
        "--rate",
        "2.5",
        "--task-rate",
        "1000",
        "--byte-rate",
        "1.5MB",
    )
    made = run("keys", "create", "ada", "--scope", "work", *bounds, "--json").row
    sent = api_key.parse_key(made["key"])

    assert sent is not None
    assert (made["id"], made["tenant"], made["queues"]) == (sent.id, "acme", ["mail", "sms"])
    assert (made["rate"], made["task_rate"], made["byte_rate"]) == (2.5, 1000, 1_500_000)
    listed = run("keys", "list").out
    assert all(text in listed for text in ("2.5/s", "1,000/s", "1,500,000/s"))
    assert run("keys", "list", "--json").row == {name: value for name, value in made.items() if name != "key"}
    assert run("keys", "revoke", sent.id, "--json").row == {"id": sent.id, "revoked": True}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("create", "x"), 2, "--scope"),
        (("create", "--scope", "read"), 2, "LABEL"),
        (
            ("create", "x", "--scope", "root"),
            2,
            "'enqueue', 'read', 'observe', 'work', 'operate', 'reveal', 'admin'",
        ),
        (("create", "", "--scope", "read"), 2, "label"),
        (("create", "\x1b[2J", "--scope", "read"), 2, "label"),
        (("create", "x" * 101, "--scope", "read"), 2, "1 to 100"),
        (("create", "x", "--scope", "read", "--tenant", "a b"), 2, "tenant 'a b' is not a valid name"),
        (("create", "x", "--scope", "read", "--tenant", ""), 2, "tenant"),
        (("create", "x", "--scope", "read", "-q", "\x1b"), 2, "queue"),
        (("create", "x", "--scope", "read", "--expires", "soon"), 2, "--expires"),
        (("create", "x", "--scope", "read", "--expires", "0s"), 2, "more than 0"),
        (("create", "x", "--scope", "read", "--rate", "0"), 2, "rate must be from"),
        (("create", "x", "--scope", "read", "--task-rate", "0"), 2, "task_rate must be from"),
        (("create", "x", "--scope", "read", "--byte-rate", "much"), 2, "'much' is not a size such as"),
        (("create", "x", "--scope", "read", "--byte-rate", "1B"), 2, "byte_rate must be from 1,000"),
        (("create", "x", "--scope", "read", "--key", ""), 2, "idempotency key"),
        (("rotate", "nobody"), 3, "no key 'nobody'; `windlass keys list`"),
        (("rotate", "nobody", "--overlap", "-1s"), 2, "--overlap"),
        (("revoke", "nobody"), 3, "no key 'nobody'; `windlass keys list`"),
        (("revoke", "\x1b[2J"), 3, "no key"),
    ],
)
def test_an_invalid_command_is_refused(run: Run, arguments: tuple[str, ...], code: int, message: str) -> None:
    run("migrate")

    ran = run("keys", *arguments)

    assert ran.code == code, ran.err
    assert message in ran.err
    assert "\x1b" not in ran.err
    assert ran.out == ""
    assert run("keys", "list", "--json").rows == []


def test_creating_a_key_creates_the_store(run: Run) -> None:
    assert "windlass migrate" in run("keys", "list").err
    assert run("keys", "create", "first", "--scope", "admin").code == 0
    assert run("keys", "list", "--json").row["label"] == "first"
