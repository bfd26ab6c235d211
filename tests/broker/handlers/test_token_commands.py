"""`penstock token`, with the client config of a user, and of a token."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cli.failure import FAILED, MISUSED
from penstock.testing import BrokerThread, broker
from tests.broker.logins import ports
from tests.cli.running import run_here
from tests.secured import HOST

Run = Callable[..., tuple[int, str, str]]
PLAIN = """security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=x required username="alice" password="a";
"""


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerThread]:
    config = {
        "listeners": f"SASL://{HOST}:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl.plain.sasl.jaas.config": 'x required user_alice="a" user_bob="a";',
        "delegation.token.secret.key": "secret",
    }
    with broker(config=config) as started:
        yield started


@pytest.fixture
def penstock(running: BrokerThread, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str, config: str = PLAIN) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        path = tmp_path / "client.properties"
        path.touch(0o600)
        path.write_text(config)
        bootstrap = f"{HOST}:{ports(running)['SASL']}"
        code = run_here("--command-config", str(path), *arguments, "--bootstrap", bootstrap)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_a_user_creates_renews_lists_and_ends_a_token(penstock: Run) -> None:
    code, out, _ = penstock("token", "create", "--renewer", "User:bob", "--max-lifetime", "2h", "--json")
    made = json.loads(out)
    assert (code, made["owner"], made["renewers"]) == (0, "User:alice", ["User:bob"])
    assert made["max_ms"] - made["issued_ms"] == 2 * 3600 * 1000
    listed = penstock("token", "list")[1]
    assert made["token"] in listed and made["hmac"] not in listed
    (row,) = json.loads(penstock("token", "list", "--owner", "User:bob", "--json")[1])
    assert row["token"] == made["token"] and "hmac" not in row
    assert penstock("token", "list", "--owner", "User:eve")[1] == ""
    code, out, _ = penstock("token", "renew", made["token"], "--period", "1h")
    assert code == 0 and out.startswith(f"{made['token']}: valid until ")
    code, out, _ = penstock("token", "expire", made["token"], "--after", "30m")
    assert code == 0 and out.startswith(f"{made['token']}: valid until ")
    assert penstock("token", "expire", made["token"])[1] == f"{made['token']}: removed\n"
    code, _, err = penstock("token", "renew", made["token"])
    assert code == MISUSED and f"there is no delegation token {made['token']}" in err


def test_the_printed_login_works_and_makes_no_further_tokens(penstock: Run) -> None:
    out = penstock("token", "create")[1]
    login = "".join(f"{line.strip()}\n" for line in out.splitlines() if line.strip().startswith("sasl."))
    assert 'tokenauth="true"' in login
    config = f"security.protocol=SASL_PLAINTEXT\n{login}"
    assert penstock("user", "list", config=config)[0] == 0
    code, _, err = penstock("token", "list", config=config)
    assert code == FAILED and "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in err
    # librdkafka has no such login.
    code, _, err = penstock("topic", "list", config=config)
    assert code == FAILED and "librdkafka cannot log in with a delegation token" in err


def test_mistakes_are_explained_in_one_line(penstock: Run) -> None:
    for arguments in (
        ("create", "--owner", "alice"),
        ("create", "--renewer", "alice"),
        ("create", "--max-lifetime", "soon"),
        ("expire", "unknown"),
    ):
        code, out, err = penstock("token", *arguments)
        assert (code, out) == (MISUSED, "") and len(err.splitlines()) == 1, arguments
