"""Requests that go to brokers directly."""

from __future__ import annotations

import socket

import pytest

from penstock.cli.direct import DirectLine, NoAnswer, refuse
from penstock.cli.failure import Failure
from penstock.model.addresses import parse_address
from penstock.testing import cluster
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from penstock.wire.apis.vote import VOTE, VoteRequest

REQUEST = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def nobody() -> str:
    """An address that no process listens on, or begins to."""
    return "127.0.0.1:1"


def test_the_first_reachable_broker_gets_the_request(broker: str) -> None:
    with DirectLine(f"{nobody()}, {broker}", 60) as line:
        answer = line.send(DESCRIBE_CLUSTER, DescribeClusterRequest())
    assert [f"{b.host}:{b.port}" for b in answer.brokers] == [broker]


def test_a_broker_that_hangs_delays_no_request(broker: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        patience_s = 600  # far more than a test may take
        with DirectLine(f"127.0.0.1:{mute.getsockname()[1]},{broker}", patience_s) as line:
            assert line.send(DESCRIBE_CLUSTER, DescribeClusterRequest()).brokers
            assert line.send(API_VERSIONS, REQUEST).api_keys


def test_the_next_broker_gets_the_request_if_one_is_gone() -> None:
    with cluster(brokers=2) as running, DirectLine(running.bootstrap, 60) as line:
        for gone in running.ids:
            answered = line.send(DESCRIBE_CLUSTER, DescribeClusterRequest(include_fenced_brokers=True))
            assert sorted(b.broker_id for b in answered.brokers) == [1, 2]
            running.kill(gone)
        with pytest.raises(Failure, match="no broker answers"):
            line.send(DESCRIBE_CLUSTER, DescribeClusterRequest())
        assert line.refused == {running.address(1), running.address(2)}


def test_a_request_that_times_out_is_not_sent_to_another_broker() -> None:
    with cluster(brokers=2) as running, DirectLine(running.bootstrap, 3) as line:
        line.send(API_VERSIONS, REQUEST)
        requested = line._client.contact
        (hangs,) = (broker for broker in running.ids if parse_address(running.address(broker)) == requested)
        running.pause(hangs)
        with pytest.raises(NoAnswer, match=r"has not answered ApiVersions within 3 s: give it a longer"):
            line.send(API_VERSIONS, REQUEST)
        assert line.send(API_VERSIONS, REQUEST).api_keys  # of the other one
        running.resume(hangs)


def test_each_answers_for_itself(broker: str) -> None:
    silent = nobody()
    with DirectLine(broker, 60) as line:
        answers = line.send_each([silent, broker], API_VERSIONS, REQUEST)
    assert answers[silent] is None
    answered = answers[broker]
    assert answered is not None
    assert answered.api_keys


def test_no_broker_responds() -> None:
    address = nobody()
    with (
        DirectLine(address, 60) as line,
        pytest.raises(Failure, match=f"no broker answers at {address}: start"),
    ):
        line.send(API_VERSIONS, REQUEST)


def test_a_broker_without_a_response_in_time_counts_as_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        with DirectLine(address, 0.1) as line, pytest.raises(Failure, match="no broker answers"):
            line.send(API_VERSIONS, REQUEST)


@pytest.mark.parametrize("address", ["nowhere", ":9092", "host:", "host:port", "host:0", "host:65536"])
def test_malformed_addresses_are_refused(address: str) -> None:
    with pytest.raises(Failure, match="is not HOST:PORT: correct --bootstrap") as refused:
        DirectLine(address, 1)
    assert refused.value.exit_code == 2


def test_an_api_that_the_broker_does_not_serve(broker: str) -> None:
    """Vote is for nodes among themselves: no listener of clients serves it."""
    with DirectLine(broker, 60) as line, pytest.raises(Failure, match="does not support Vote"):
        line.send(VOTE, VoteRequest())


def test_refusals_are_failures() -> None:
    refuse(0, "never mind", "t")
    with pytest.raises(Failure, match=r"^t-0: no such thing$"):
        refuse(3, "no such thing", "t-0")
    with pytest.raises(Failure, match=r"^t-0: UNKNOWN_TOPIC_OR_PARTITION$"):
        refuse(3, None, "t-0")
    with pytest.raises(Failure, match=r"^t-0: error 9999$"):
        refuse(9999, None, "t-0")
