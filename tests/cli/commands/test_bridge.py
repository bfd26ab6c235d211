"""`penstock bridge`: wrong usage is one line, and copies in a topic are counted."""

from __future__ import annotations

import json

import pytest

from penstock.cli import requirements
from tests.cli.running import Command


@pytest.mark.parametrize(("system", "module"), [("nats", "nats"), ("amqp", "aio_pika"), ("sqs", "boto3")])
def test_a_missing_client_is_one_line(
    penstock: Command, monkeypatch: pytest.MonkeyPatch, system: str, module: str
) -> None:
    monkeypatch.setattr(requirements, "find_spec", lambda _: None)
    done = penstock("bridge", system, "from", "to")
    assert (done.returncode, done.stderr) == (
        1,
        f"penstock: {module} is missing: pip install 'penstock-mq[bridge]'\n",
    )


@pytest.fixture
def with_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """The libraries count as installed; wrong usage is found before they are imported."""
    monkeypatch.setattr(requirements, "find_spec", lambda _: object())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nats", "S", "t", "--key", "group"), "--key 'group' is not one of none, subject, header:NAME"),
        (("nats", "S", "t", "--reverse"), "--reverse needs --subject"),
        (("nats", "S", "t", "--reverse", "--subject", "a.*"), "without wildcards"),
        (("amqp", "q", "t", "--url", "http://x"), "--url must begin with amqp:// or amqps://"),
        (("amqp", "q", "t", "--url", "amqp://me:pw@h/"), "--url has a secret: `ps` and"),
        (("nats", "S", "t", "--server", "nats://h,nats://token@h"), "--server has a secret: `ps` and"),
        (("sqs", "q", "t", "--reverse", "--refused", "release"), "and a topic does not"),
        (("sqs", "q", "t", "--in-flight", "0"), "--in-flight"),
    ],
)
def test_wrong_usage(penstock: Command, with_clients: None, arguments: tuple[str, ...], said: str) -> None:
    done = penstock("bridge", *arguments)
    assert done.returncode == 2
    assert said in done.stderr and done.stderr.count("\n") == 1


def test_a_missing_topic_is_named_before_a_connection_is_made(penstock: Command, with_clients: None) -> None:
    done = penstock("bridge", "amqp", "q", "nowhere-to-copy")
    assert (done.returncode, "no topic nowhere-to-copy" in done.stderr) == (1, True)


def test_a_secret_comes_from_the_environment(
    penstock: Command, with_clients: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMQP_URL", "amqp://me:pw@127.0.0.1/")
    assert "no topic nowhere" in penstock("bridge", "amqp", "q", "nowhere").stderr
    for url in ("amqp://guest:guest@127.0.0.1/", "amqp://me@127.0.0.1/"):
        assert "no topic nowhere" in penstock("bridge", "amqp", "q", "nowhere", "--url", url).stderr


def test_copies_are_counted(penstock: Command) -> None:
    penstock("topic", "create", "counted", "--partitions", "2")
    rows = [
        {
            "value": "a",
            "key": str(number % 3),
            "headers": [
                {"name": "penstock-bridge-source", "value": "sqs"},
                {"name": "penstock-bridge-id", "value": f"id-{number % 3}"},
            ],
        }
        for number in range(4)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in [*rows, {"value": "own"}])
    assert penstock("produce", "counted", "--format", "json", input=lines).returncode == 0
    found = json.loads(penstock("bridge", "count", "counted", "--json").stdout)
    assert found == {
        "topic": "counted",
        "records": 5,
        "sources": [{"source": "sqs", "copies": 4, "distinct": 3, "duplicates": 1, "without_id": 0}],
    }
    assert penstock("bridge", "count", "counted").stdout.splitlines()[1].split() == [
        "sqs",
        "4",
        "3",
        "1",
        "0",
    ]
    penstock("topic", "create", "uncounted")
    assert "no copies among the 0 records" in penstock("bridge", "count", "uncounted").stderr
