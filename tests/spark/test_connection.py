from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from penstock.model.errors import ApiError, ErrorCode
from penstock.net.peer_errors import PeerGone, PeerLost, PeerRejected
from penstock.reading.connection import Attempts, Cluster, Endpoint, cluster_of
from penstock.spark.options import ReadOptions, WriteOptions
from penstock.testing import BrokerThread, broker
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from penstock.wire.routing import Node
from tests.spark.topics import Topics


def endpoint(bootstrap: str, client_id: str = "tests") -> Endpoint:
    host, _, port = bootstrap.rpartition(":")
    return Endpoint(((host, int(port)),), client_id, request_timeout_s=60.0, total_timeout_s=60.0)


def test_connections_are_kept_while_nothing_is_under_way(topics: Topics) -> None:
    cluster = Cluster(endpoint(topics.bootstrap))
    (address,) = cluster.endpoint.bootstrap
    first = cluster.connection(address)
    assert cluster.connection(address) is first
    first.send(METADATA, MetadataRequest())
    second = cluster.connection(address)
    assert second is not first
    assert not first.is_idle, "a remaining reference is not mistaken for a good one"
    with pytest.raises(PeerGone, match="closed"):
        first.receive()
    assert second.call(METADATA, MetadataRequest()).brokers
    cluster.close()
    with pytest.raises(PeerGone, match="closed"):
        second.send(METADATA, MetadataRequest())


@pytest.fixture(scope="module")
def secured() -> Iterator[BrokerThread]:
    pytest.importorskip("cryptography")
    with broker(secure=True) as running:
        yield running


def options_of(running: BrokerThread, **changes: str) -> dict[str, str]:
    settings = {"bootstrap.servers": running.bootstrap, **running.client_config, **changes}
    return {"subscribe": "t", **{f"kafka.{name}": value for name, value in settings.items()}}


def test_a_secured_cluster_is_read_with_the_settings_of_its_clients(secured: BrokerThread) -> None:
    """Workers get the options pickled. Java's names and those of librdkafka are the same settings."""
    config = secured.client_config
    by_java = {
        "sasl.jaas.config": f'x required username="{config["sasl.username"]}" password="'
        f'{config["sasl.password"]}";',
        "ssl.truststore.certificates": config["ssl.ca.pem"],
    }
    plain = {name: config[name] for name in ("security.protocol", "sasl.mechanism")}
    java = {"kafka.bootstrap.servers": secured.bootstrap, "subscribe": "t"}
    java |= {f"kafka.{name}": value for name, value in (plain | by_java).items()}
    for options in (options_of(secured), java):
        read = pickle.loads(pickle.dumps(ReadOptions.parse(options, streaming=False)))
        cluster = Cluster(read.endpoint)
        assert cluster.call(cluster.view.next_node(), METADATA, MetadataRequest()).brokers
        cluster.close()
        assert config["sasl.password"] not in repr(read)
    del java["subscribe"]
    written = WriteOptions.parse(java)
    assert written.producer == {"bootstrap.servers": secured.bootstrap, **config}
    assert config["sasl.password"] not in repr(written)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sasl.password": "wrong"}, "error 58"),
        ({"security.protocol": "SSL"}, "closed the connection|no response"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "closed the connection|no response"),
    ],
)
def test_a_secured_cluster_refuses_other_clients(
    secured: BrokerThread, changes: dict[str, str], reason: str
) -> None:
    read = ReadOptions.parse(options_of(secured, **changes), streaming=False)
    cluster = Cluster(read.endpoint)
    with pytest.raises(PeerGone, match=reason) as refused:
        cluster.call(cluster.view.next_node(), METADATA, MetadataRequest())
    assert isinstance(refused.value, PeerRejected) == ("sasl.password" in changes)


def test_a_process_has_one_cluster_for_an_endpoint_and_not_too_many(topics: Topics) -> None:
    first = cluster_of(endpoint(topics.bootstrap, "first"))
    connection = first.connection(first.endpoint.bootstrap[0])
    assert cluster_of(endpoint(topics.bootstrap, "first")) is first
    for number in range(20):
        cluster_of(endpoint(topics.bootstrap, f"other {number}"))
    assert cluster_of(endpoint(topics.bootstrap, "first")) is not first
    assert not connection.is_idle, "its connections are closed"


def test_when_all_known_brokers_are_gone_the_bootstrap_servers_are_used(topics: Topics, topic: str) -> None:
    cluster = Cluster(endpoint(topics.bootstrap))
    cluster.view.nodes[7] = Node(7, "127.0.0.1", 1, None)
    cluster.refresh([topic])
    assert cluster.leader(topic, 2) == cluster.endpoint.bootstrap[0]
    with pytest.raises(ApiError, match=f"there is no {topic}-3") as unknown:
        cluster.leader(topic, 3)
    assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.close()


def test_attempts_end_with_the_last_error(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, waited_s = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        now_s[0] += seconds
        waited_s.append(seconds)

    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    monkeypatch.setattr("time.sleep", sleep)
    attempts = Attempts(2.0)
    with pytest.raises(PeerGone, match=r"number [456]"):
        for number in range(9):
            attempts.failed(PeerLost(f"number {number}"))
    assert 4 <= len(waited_s) <= 6
    assert sum(waited_s) <= 2.0
    assert waited_s[-1] > waited_s[0]
    attempts.succeeded()
    attempts.failed(PeerLost("there is time again"))
