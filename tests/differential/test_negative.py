"""The negative matrix on Penstock, on the listeners of clients and of nodes, beside Kafka's outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

pytest.importorskip("jwt")
pytest.importorskip("cryptography")

from differential.negative.brokers import penstock_settings
from differential.negative.cells import SASL, TLS, Ports, cells
from differential.negative.credentials import HOST, Credentials
from differential.negative.outcomes import DEVIATIONS, PAGE, recorded, rendered
from penstock.testing import BrokerThread, broker
from penstock.testing.clusters import reserve_port


class Outcome(NamedTuple):
    code: str
    #: the text of the error
    message: str | None


def listeners(running: BrokerThread) -> dict[str, int]:
    internal = running.broker.stages.listening.internal
    assert internal is not None
    return {each.name: each.port for each in (*running.broker.stages.listening.listeners, internal.listener)}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Outcome]]]:
    """The outcomes by kind of listener and cell. An internal listener has one protocol: two brokers."""
    credentials = Credentials(tmp_path_factory.mktemp("matrix"))
    with ExitStack() as stack:
        found: dict[str, dict[str, int]] = {}
        for protocol in ("SSL", "SASL_PLAINTEXT"):
            port = stack.enter_context(reserve_port()).getsockname()[1]
            config = {
                **penstock_settings(credentials),
                "listeners": f"TLS://{HOST}:0,SASL://{HOST}:0,INTERNAL://{HOST}:{port}",
                "listener.security.protocol.map": f"TLS:SSL,SASL:SASL_PLAINTEXT,INTERNAL:{protocol}",
                "listener.name.internal.ssl.client.auth": "required",
                "controller.quorum.voters": f"1@{HOST}:{port}",
                "penstock.audit.destination": "off",
                "penstock.log.level": "error",
            }
            found[protocol] = listeners(stack.enter_context(broker(config=config)))
        clients = found["SSL"]
        ports = {
            "clients": Ports(clients["TLS"], clients["SASL"]),
            "nodes": Ports(found["SSL"]["INTERNAL"], found["SASL_PLAINTEXT"]["INTERNAL"]),
        }
        yield {
            kind: {cell.name: Outcome(*cell.probe(at)) for cell in cells(credentials)}
            for kind, at in ports.items()
        }


@pytest.mark.parametrize("kind", ["clients", "nodes"])
def test_every_cell_has_kafkas_outcome_or_a_reason(
    outcomes: dict[str, dict[str, Outcome]], kind: str
) -> None:
    theirs = recorded()
    assert outcomes[kind].keys() == theirs.keys(), "run `make security-matrix`"
    different = {
        name: (outcome.code, theirs[name])
        for name, outcome in outcomes[kind].items()
        if outcome.code != theirs[name]
    }
    unexplained = {
        name: codes
        for name, codes in different.items()
        if name.partition("/")[2] not in DEVIATIONS and name.split("/", 2)[2] not in DEVIATIONS
    }
    assert unexplained == {}


@pytest.mark.parametrize("kind", ["clients", "nodes"])
def test_only_good_credentials_are_served(outcomes: dict[str, dict[str, Outcome]], kind: str) -> None:
    """Without regard to Kafka: a wrong thing that is served is a hole."""
    served = {name for name, outcome in outcomes[kind].items() if "served" in outcome.code}
    assert {name.split("/", 2)[2] for name in served} == {"good credentials", "a good certificate"}
    assert len(served) == 5
    assert not [name for name, outcome in outcomes[kind].items() if "open" in outcome.code]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_failures_of_a_mechanism_look_the_same(
    outcomes: dict[str, dict[str, Outcome]], mechanism: str
) -> None:
    """An error text does not show whether the user or the password is wrong."""
    for kind in outcomes.values():
        of_mechanism = [each for name, each in kind.items() if name.startswith(f"{SASL}/{mechanism}/")]
        texts = {each.message for each in of_mechanism if each.code == "error 58"}
        assert len(texts) == 1


def test_the_page_has_the_outcomes(outcomes: dict[str, dict[str, Outcome]]) -> None:
    ours = {name: outcome.code for name, outcome in outcomes["clients"].items()}
    assert PAGE.read_text(encoding="utf-8") == rendered(ours, recorded())
    assert any(name.startswith(f"{TLS}/") for name in ours)
