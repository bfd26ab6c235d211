"""Runs Kafka's tools against secured brokers of Penstock and of Apache Kafka, and compares their output.

    make security-tools     # or: python -m differential.secured_tools [--against penstock]

The Java clients in the tools log in over SASL_SSL, or with a certificate, and have PEM stores.
"""

from __future__ import annotations

import difflib
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from lab.apache_kafka import tool
from lab.secured import SecuredServer, secured
from penstock.security.client_names import java_names
from tools.arguments import Arguments

_ACLS: Final = "org.apache.kafka.tools.AclCommand"
_CONFIGS: Final = "kafka.admin.ConfigCommand"
_TOKENS: Final = "org.apache.kafka.tools.DelegationTokenCommand"
_TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
_PRODUCER: Final = "org.apache.kafka.tools.ConsoleProducer"
_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_TIMEOUT_S: Final = 120.0
_SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:bench;User:CN=client",
    "delegation.token.secret.key": "secret",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.sasl.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
}
_SASL, _TLS = "sasl.properties", "tls.properties"
#: the config of a client with the delegation token that a step has created
_TOKEN = "token.properties"


class Step(NamedTuple):
    name: str
    run: Callable[[SecuredServer], str]


def _write_configs(made: SecuredServer) -> None:
    """The client configs of both listeners, under the names of Java clients."""
    for name, (_, settings) in ((_SASL, made.sasl), (_TLS, made.tls)):
        java = java_names(settings)
        java["security.protocol"] = java["security.protocol"].upper()
        java |= {"ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM"}
        if "sasl.username" in java:
            login = f'username="{java.pop("sasl.username")}" password="{java.pop("sasl.password")}"'
            java["sasl.jaas.config"] = (
                f"org.apache.kafka.common.security.plain.PlainLoginModule required {login};"
            )
        path = made.folder / name
        path.touch(0o600)
        path.write_text("".join(f"{key}={value}\n" for key, value in java.items()))


def _run(made: SecuredServer, main_class: str, *arguments: str, config: str = _SASL, stdin: str = "") -> str:
    bootstrap = (made.tls if config == _TLS else made.sasl)[0]
    where = ["--bootstrap-server", bootstrap, "--command-config", str(made.folder / config)]
    done = subprocess.run(
        [*tool(main_class), *where, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if not line.startswith("[")]
    lines += [line for line in done.stderr.splitlines() if re.search(r"(Exception|Error|Failed)", line)]
    return _settled("\n".join([*lines, f"exit {done.returncode}"]))


def _settled(text: str) -> str:
    """Replace what differs between two runs, and sort: the order of ACLs is not defined."""
    text = re.sub(r"(localhost|127\.0\.0\.1):\d+", "HOST", text)
    text = re.sub(r"TopicId: \S+", "TopicId: ID", text)
    text = re.sub(r"\S+/(\w+\.properties)", r"\1", text)
    text = re.sub(r"^\tat .*$", "", text, flags=re.MULTILINE)
    return "\n".join(sorted(" ".join(line.split()) for line in text.splitlines() if line.strip()))


def _tool(
    main_class: str, *arguments: str, config: str = _SASL, stdin: str = ""
) -> Callable[[SecuredServer], str]:
    return lambda made: _run(made, main_class, *arguments, config=config, stdin=stdin)


_LIFETIME: Final = ("--max-life-time-period", "-1")


def _create_token(made: SecuredServer) -> str:
    """Create a token, and write the config of a client that logs in with it."""
    text = _run(made, _TOKENS, "--create", *_LIFETIME, "--renewer-principal", "User:alice")
    found = re.search(r"^(?P<id>[\w-]{22}) (?P<hmac>[\w+/=]{88}) ", text, re.MULTILINE)
    if found is not None:
        lines = (made.folder / _SASL).read_text().splitlines()
        kept = [line for line in lines if not line.startswith("sasl.")]
        login = f'username="{found["id"]}" password="{found["hmac"]}" tokenauth="true"'
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        kept += ["sasl.mechanism=SCRAM-SHA-512", f"sasl.jaas.config={module} required {login};"]
        path = made.folder / _TOKEN
        path.touch(0o600)
        path.write_text("\n".join([*kept, ""]))
    return _without_token(text)


def _without_token(text: str) -> str:
    """Without ids, HMACs and times."""
    text = re.sub(r"\b[\w+/]{86}==", "HMAC", text)
    text = re.sub(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d", "TIME", text)
    text = re.sub(r"(?m)^[\w-]{22} HMAC|(?<=tokenId : )[\w-]{22}", "ID", text)
    return "\n".join(sorted(text.splitlines()))


def _with_token(*arguments: str, config: str = _SASL) -> Callable[[SecuredServer], str]:
    """The tool of tokens with the HMAC of the created token."""

    def run(made: SecuredServer) -> str:
        path = made.folder / _TOKEN
        found = re.search(r'password="([^"]+)"', path.read_text()) if path.exists() else None
        hmac = found[1] if found is not None else "YWJj"
        return _without_token(_run(made, _TOKENS, *arguments, "--hmac", hmac, config=config))

    return run


_ALICE: Final = ("--entity-type", "users", "--entity-name", "alice")
_ORDERS: Final = ("--topic", "orders")
_READ: Final = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "20000")
STEPS: Final = (
    Step("create a topic", _tool(_TOPICS, "--create", *_ORDERS, "--partitions", "2")),
    Step("describe it with a certificate", _tool(_TOPICS, "--describe", *_ORDERS, config=_TLS)),
    Step("produce over SASL_SSL", _tool(_PRODUCER, *_ORDERS, stdin="one\ntwo\n")),
    Step("consume with a certificate", _tool(_CONSUMER, *_ORDERS, *_READ, config=_TLS)),
    Step(
        "allow a producer",
        _tool(_ACLS, "--add", "--allow-principal", "User:alice", "--producer", *_ORDERS),
    ),
    Step(
        "deny a prefix",
        _tool(
            _ACLS,
            *("--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "Read"),
            *("--topic", "ord", "--resource-pattern-type", "prefixed"),
        ),
    ),
    Step("list all", _tool(_ACLS, "--list")),
    Step("list what affects a topic", _tool(_ACLS, "--list", *_ORDERS, "--resource-pattern-type", "match")),
    Step("list of a principal", _tool(_ACLS, "--list", "--principal", "User:alice")),
    Step(
        "remove",
        _tool(_ACLS, "--remove", "--force", "--allow-principal", "User:alice", "--producer", *_ORDERS),
    ),
    Step("list what is left", _tool(_ACLS, "--list")),
    Step(
        "set a SCRAM password",
        _tool(_CONFIGS, "--alter", *_ALICE, "--add-config", "SCRAM-SHA-512=[password=b]"),
    ),
    Step(
        "set two SCRAM passwords at once, which Kafka refuses",
        _tool(
            _CONFIGS,
            *("--alter", *_ALICE),
            *("--add-config", "SCRAM-SHA-256=[iterations=8192,password=a],SCRAM-SHA-512=[password=b]"),
        ),
    ),
    Step("describe SCRAM credentials", _tool(_CONFIGS, "--describe", *_ALICE)),
    Step(
        "iterations that are too few",
        _tool(_CONFIGS, "--alter", *_ALICE, "--add-config", "SCRAM-SHA-256=[iterations=10,password=a]"),
    ),
    Step("delete a SCRAM password", _tool(_CONFIGS, "--alter", *_ALICE, "--delete-config", "SCRAM-SHA-512")),
    Step("delete it again", _tool(_CONFIGS, "--alter", *_ALICE, "--delete-config", "SCRAM-SHA-512")),
    Step(
        "set quotas",
        _tool(_CONFIGS, "--alter", *_ALICE, "--add-config", "producer_byte_rate=1024,request_percentage=50"),
    ),
    Step(
        "set quotas of a client of a user",
        _tool(
            _CONFIGS,
            *("--alter", *_ALICE, "--entity-type", "clients", "--entity-default"),
            *("--add-config", "consumer_byte_rate=2048"),
        ),
    ),
    Step(
        "set a quota of an address",
        _tool(
            _CONFIGS,
            *("--alter", "--entity-type", "ips", "--entity-name", "10.0.0.1"),
            *("--add-config", "connection_creation_rate=5"),
        ),
    ),
    Step("describe users", _tool(_CONFIGS, "--describe", "--entity-type", "users")),
    Step("describe addresses", _tool(_CONFIGS, "--describe", "--entity-type", "ips")),
    Step("delete a quota", _tool(_CONFIGS, "--alter", *_ALICE, "--delete-config", "producer_byte_rate")),
    Step(
        "create a delegation token with a renewer that is no user",
        _tool(_TOKENS, "--create", *_LIFETIME, "--renewer-principal", "Group:g"),
    ),
    Step("create a delegation token", _create_token),
    Step("describe delegation tokens", lambda made: _without_token(_run(made, _TOKENS, "--describe"))),
    Step(
        "describe the delegation tokens of another owner",
        _tool(_TOKENS, "--describe", "--owner-principal", "User:eve"),
    ),
    Step("list topics with a delegation token", _tool(_TOPICS, "--list", config=_TOKEN)),
    Step(
        "create a delegation token with a delegation token",
        _tool(_TOKENS, "--create", *_LIFETIME, config=_TOKEN),
    ),
    Step("describe delegation tokens with a delegation token", _tool(_TOKENS, "--describe", config=_TOKEN)),
    Step("renew a delegation token", _with_token("--renew", "--renew-time-period", "3600000")),
    Step(
        "renew a delegation token of another user with a certificate",
        _with_token("--renew", "--renew-time-period", "-1", config=_TLS),
    ),
    Step(
        "renew an unknown delegation token",
        _tool(_TOKENS, "--renew", "--renew-time-period", "-1", "--hmac", "YWJj"),
    ),
    Step("expire a delegation token", _with_token("--expire", "--expiry-time-period", "-1")),
    Step("expire it again", _with_token("--expire", "--expiry-time-period", "-1")),
    Step("list topics with the expired delegation token", _tool(_TOPICS, "--list", config=_TOKEN)),
)


@contextmanager
def _started(kind: str) -> Iterator[SecuredServer]:
    with TemporaryDirectory(prefix="security-tools-") as folder:
        made = secured(kind, Path(folder), _SETTINGS)
        _write_configs(made)
        made.server.start()
        try:
            yield made
        finally:
            made.server.stop()


def _difference(expected: str, found: str, against: str) -> Iterator[str]:
    return difflib.unified_diff(expected.splitlines(), found.splitlines(), against, "penstock", lineterm="")


def main() -> int:
    parser = Arguments(prog="python -m differential.secured_tools", description=__doc__)
    parser.add_argument("--against", choices=("kafka", "penstock"), default="kafka")
    parser.add_argument("--verbose", action="store_true", help="print the output of every step")
    parser.add_argument("only", nargs="*", help="steps with one of these words in their name")
    given = parser.parse_args()
    steps = [step for step in STEPS if not given.only or any(word in step.name for word in given.only)]
    # Ends the brokers, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    different = 0
    with _started("penstock") as ours, _started(given.against) as theirs, ThreadPoolExecutor(2) as both:
        for step in steps:
            found, expected = both.map(step.run, (ours, theirs))
            different += found != expected
            print(f"{'same' if found == expected else 'DIFFERENT':10} {step.name}", flush=True)
            if given.verbose:
                print("\n".join(f"    {line}" for line in found.splitlines()), flush=True)
            for line in _difference(expected, found, given.against):
                print(f"    {line}", flush=True)
    print(f"{len(steps)} steps, {different} different")
    return min(different, 1)


if __name__ == "__main__":
    sys.exit(main())
