"""`penstock acl`, `role` and `user`, against a broker with an authorizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cli.failure import FAILED, MISUSED
from penstock.model.config.access_keys import STANDARD_AUTHORIZER
from penstock.testing import broker
from tests.cli.running import lines, run_here

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    config = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with broker(config=config) as running:
        yield running.bootstrap


@pytest.fixture
def penstock(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        code = run_here(*arguments, "--bootstrap", bootstrap)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_acls_are_added_listed_explained_and_removed(penstock: Run) -> None:
    code, out, _ = penstock("acl", "add", "User:alice", "read,Describe-Configs", "topic:logs.*")
    assert (code, lines(out)) == (
        0,
        [
            "ALLOW User:alice host *: READ on TOPIC:PREFIXED:logs.",
            "ALLOW User:alice host *: DESCRIBE_CONFIGS on TOPIC:PREFIXED:logs.",
        ],
    )
    assert penstock("acl", "add", "User:*", "all", "topic:logs.secret", "--deny")[0] == 0
    rows = json.loads(penstock("acl", "list", "--resource", "topic:logs.secret", "--json")[1])
    assert {(row["permission"], row["operation"], row["resource"]) for row in rows} == {
        ("allow", "read", "topic:logs.*"),
        ("allow", "describe_configs", "topic:logs.*"),
        ("deny", "all", "topic:logs.secret"),
    }
    allowed = penstock("acl", "why", "User:alice", "describe", "topic:logs.a")
    assert allowed[0] == 0
    assert lines(allowed[1])[:2] == [
        "allowed: a binding allows it, and none denies it",
        "  ALLOW User:alice host *: READ on TOPIC:PREFIXED:logs.",
    ]
    denied = penstock("acl", "why", "User:alice", "Read", "topic:logs.secret", "--json")
    assert denied[0] == FAILED
    assert json.loads(denied[1])["acl"]["principal"] == "User:*"
    assert penstock("acl", "why", "User:ANONYMOUS", "alter", "cluster")[0] == 0
    code, out, _ = penstock("acl", "remove", "--resource", "topic:logs.*", "--operation", "read")
    assert (code, lines(out)) == (0, ["removed: ALLOW User:alice host *: READ on TOPIC:PREFIXED:logs."])
    assert penstock("acl", "why", "User:alice", "read", "topic:logs.a")[0] == FAILED
    assert penstock("acl", "remove", "--host", "10.0.0.1")[1] == "there are no such ACLs\n"


def test_roles(penstock: Run) -> None:
    assert penstock("acl", "add", "Role:ops", "alter", "cluster")[0] == 0
    assert penstock("acl", "why", "User:bob", "alter", "cluster")[0] == FAILED
    assert penstock("role", "add", "ops", "User:bob", "User:CN=n,O=acme")[0] == 0
    assert json.loads(penstock("role", "list", "--json")[1]) == [
        {"role": "ops", "member": "User:bob"},
        {"role": "ops", "member": "User:CN=n,O=acme"},
    ]
    code, out, _ = penstock("acl", "why", "User:bob", "alter", "cluster")
    assert code == 0
    assert "principals considered: User:bob, Role:ops, User:*" in out
    assert penstock("role", "remove", "ops", "User:bob")[0] == 0
    assert penstock("acl", "why", "User:bob", "alter", "cluster")[0] == FAILED
    code, _, err = penstock("role", "add", "ops", "Role:other")
    assert code == FAILED
    assert "Role:other is a role" in err


def test_users(penstock: Run, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("open sesame\n")
    code, out, _ = penstock("user", "set", "alice", "--password-file", str(secret))
    assert (code, out) == (0, "alice: set the password for SCRAM-SHA-256, SCRAM-SHA-512\n")
    assert json.loads(penstock("user", "list", "--json")[1]) == [
        {"user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 4096},
        {"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 4096},
    ]
    assert penstock("user", "remove", "alice", "--mechanism", "scram-sha-256")[0] == 0
    assert penstock("user", "remove", "alice")[1] == "alice: removed the password for SCRAM-SHA-512\n"
    assert penstock("user", "remove", "alice")[0] == MISUSED


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", "alice", "read", "topic:t"),
        ("add", "User:alice", "eat", "topic:t"),
        ("add", "User:alice", "read", "t"),
        ("remove",),
    ],
    ids=str,
)
def test_arguments_that_make_no_sense(penstock: Run, arguments: tuple[str, ...]) -> None:
    assert penstock("acl", *arguments)[0] == MISUSED


def test_a_user_is_revoked(penstock: Run, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("s3cret\n")
    assert penstock("user", "set", "mallory", "--password-file", str(secret))[0] == 0
    code, out, _ = penstock("user", "revoke", "mallory")
    assert (code, lines(out)) == (
        0,
        [
            "mallory: removed the password for SCRAM-SHA-256, SCRAM-SHA-512",
            "mallory: closed all connections",
        ],
    )
    assert "mallory" not in penstock("user", "list", "--json")[1]
    code, out, _ = penstock("user", "revoke", "User:CN=node,O=acme")
    assert code == 0
    assert "CN=node,O=acme has no password in the metadata" in out and "ssl.crl.location" in out


def test_a_command_does_not_revoke_its_own_user(penstock: Run, tmp_path: Path) -> None:
    config = tmp_path / "admin.properties"
    login = 'x required username="admin" password="p";'
    config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.jaas.config={login}\n")
    config.chmod(0o600)
    code, _, err = penstock("--command-config", str(config), "user", "revoke", "admin")
    assert code == MISUSED and "another administrator" in err
