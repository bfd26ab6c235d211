"""ApiVersions, and what happens to requests for what it does not list."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.handlers.api_versions import ApiVersionsHandler
from penstock.broker.handlers.client_telemetry import TELEMETRY_APIS
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ErrorCode
from penstock.testing import broker
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from tests.broker.conftest import penstock_only
from tests.broker.raw import RawClient
from tests.broker.requests import every_version

#: key: (name, lowest, highest), as the project promises
PROMISED = {
    0: ("Produce", 0, 13),
    1: ("Fetch", 4, 18),
    2: ("ListOffsets", 1, 11),
    3: ("Metadata", 0, 13),
    8: ("OffsetCommit", 2, 10),
    9: ("OffsetFetch", 1, 10),
    10: ("FindCoordinator", 0, 6),
    11: ("JoinGroup", 0, 9),
    12: ("Heartbeat", 0, 4),
    13: ("LeaveGroup", 0, 5),
    14: ("SyncGroup", 0, 5),
    15: ("DescribeGroups", 0, 6),
    16: ("ListGroups", 0, 5),
    18: ("ApiVersions", 0, 4),
    19: ("CreateTopics", 2, 7),
    20: ("DeleteTopics", 1, 6),
    21: ("DeleteRecords", 0, 2),
    22: ("InitProducerId", 0, 6),
    23: ("OffsetForLeaderEpoch", 2, 4),
    32: ("DescribeConfigs", 1, 4),
    33: ("AlterConfigs", 0, 2),
    34: ("AlterReplicaLogDirs", 1, 2),
    35: ("DescribeLogDirs", 1, 5),
    37: ("CreatePartitions", 0, 3),
    42: ("DeleteGroups", 0, 2),
    44: ("IncrementalAlterConfigs", 0, 1),
    47: ("OffsetDelete", 0, 0),
    48: ("DescribeClientQuotas", 0, 1),
    49: ("AlterClientQuotas", 0, 1),
    60: ("DescribeCluster", 0, 2),
    61: ("DescribeProducers", 0, 0),
    68: ("ConsumerGroupHeartbeat", 0, 1),
    69: ("ConsumerGroupDescribe", 0, 1),
    74: ("ListConfigResources", 0, 1),
    75: ("DescribeTopicPartitions", 0, 0),
    88: ("StreamsGroupHeartbeat", 0, 0),
    89: ("StreamsGroupDescribe", 0, 0),
}
#: names itself, as version 3 and later must
POLITE = ApiVersionsRequest(client_software_name="raw", client_software_version="1.0")


def call(client: RawClient, version: int, request: ApiVersionsRequest = POLITE) -> ApiVersionsResponse:
    return client.call(API_VERSIONS, version, request)


@pytest.mark.parametrize("version", every_version(API_VERSIONS))
def test_every_promised_api_is_advertised_in_its_range(client: RawClient, version: int) -> None:
    response = call(client, version)

    assert response.error_code == ErrorCode.NONE
    advertised = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    for key, (name, lowest, highest) in PROMISED.items():
        assert advertised[key] == (lowest, highest), name


@penstock_only
def test_exactly_the_apis_with_a_handler_are_advertised() -> None:
    with broker() as running, RawClient(running.bootstrap) as client:
        advertised = [api.api_key for api in call(client, 4).api_keys]
        handled = list(running.broker.serving.dispatcher.apis)

    # Those of client metrics only while the cluster has a subscription.
    expected = sorted(api.key for api in handled if api not in TELEMETRY_APIS)
    assert sorted(advertised) == expected
    assert {api.key: api.name for api in handled if api.key in PROMISED} == {
        key: name for key, (name, _, _) in PROMISED.items()
    }


@pytest.mark.parametrize("version", [3, 4])
def test_features_travel_in_tagged_fields(client: RawClient, version: int) -> None:
    response = call(client, version)

    supported = {f.name: (f.min_version, f.max_version) for f in response.supported_features}
    finalized = {f.name: f.max_version_level for f in response.finalized_features}
    low, high = supported["metadata.version"]
    assert low <= finalized["metadata.version"] <= high
    assert response.finalized_features_epoch >= 0


def test_features_are_shown_as_kafkas_tools_expect_them(client: RawClient) -> None:
    supported = {f.name: (f.min_version, f.max_version) for f in call(client, 4).supported_features}

    assert supported["kraft.version"] == (0, 1)
    assert supported["eligible.leader.replicas.version"] == (0, 1)


def test_version_3_never_states_that_a_feature_starts_at_zero(client: RawClient) -> None:
    assert all(feature.min_version > 0 for feature in call(client, 3).supported_features)


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_an_unsupported_version_is_answered_in_version_0_with_our_range(
    client: RawClient, version: int
) -> None:
    header_tags = b"\x00" if version >= API_VERSIONS.flexible_from else b""
    client.socket.sendall(_frame(API_VERSIONS.key, version, correlation_id=77, body=header_tags))

    size, correlation_id, error, count = struct.unpack(">iihi", _read(client, 14))

    assert (correlation_id, error) == (77, ErrorCode.UNSUPPORTED_VERSION)
    assert count == 1
    assert struct.unpack(">hhh", _read(client, 6)) == (API_VERSIONS.key, 0, 4)
    assert size == 16
    assert call(client, 4).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [3, 4])
def test_the_response_header_has_no_tags_even_in_flexible_versions(client: RawClient, version: int) -> None:
    body = b"\x04raw\x041.0\x00"
    client.socket.sendall(_frame(API_VERSIONS.key, version, correlation_id=78, body=b"\x00" + body))

    _, correlation_id, error = struct.unpack(">iih", _read(client, 10))

    assert (correlation_id, error) == (78, ErrorCode.NONE)


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("name", "software_version"),
    [("", "1.0"), ("raw", ""), ("-raw", "1.0"), ("raw.", "1.0"), ("r w", "1.0"), ("raw", "1,0"), ("é", "1")],
)
def test_software_that_does_not_name_itself_properly_is_refused(
    client: RawClient, version: int, name: str, software_version: str
) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)

    assert call(client, version, request).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["a", "apache-kafka-java", "librdkafka", "confluent-kafka-2.0", "9-b"])
def test_software_that_names_itself_properly_is_welcome(client: RawClient, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="v2.10.0-rc1")

    assert call(client, 4, request).error_code == ErrorCode.NONE


def test_little_is_kept_of_a_long_software_name() -> None:
    """A client that is not authenticated chooses it, in a request of up to half a megabyte."""
    quorum: Any = SimpleNamespace(kraft_level=0)
    context: Any = SimpleNamespace(version=4, connection=SimpleNamespace(software=None))
    request = ApiVersionsRequest(client_software_name="n" * 500_000, client_software_version="1" * 500_000)
    response = ApiVersionsHandler(ClusterImage(), quorum, ()).api_versions(context, request)
    assert response.error_code == ErrorCode.NONE
    assert context.connection.software == ("n" * 128, "1" * 128)


@pytest.mark.parametrize(
    ("key", "version"), [(3, 14), (3, -1), (0, 2), (0, 14), (1, 3), (1, 19), (999, 0), (-1, 0), (8, 99)]
)
def test_an_unknown_api_or_version_closes_the_connection(address: str, key: int, version: int) -> None:
    with RawClient(address) as stranger, RawClient(address) as other:
        stranger.socket.sendall(_frame(key, version))

        assert stranger.is_closed()
        assert call(other, 4).error_code == ErrorCode.NONE


def test_unknown_apis_and_versions_are_counted() -> None:
    with broker() as running:
        for key, version in [(999, 0), (999, 0), (3, 99)]:
            with RawClient(running.bootstrap) as stranger:
                stranger.socket.sendall(_frame(key, version, body=b"\x00"))
                assert stranger.is_closed()
        with RawClient(running.bootstrap) as hopeful:
            hopeful.socket.sendall(_frame(API_VERSIONS.key, 9, body=b"\x00"))
            _read(hopeful, 20)

        assert running.broker.stages.storage.metrics.unsupported == {
            (999, 0): 2,
            (3, 99): 1,
            (API_VERSIONS.key, 9): 1,
        }
        assert running.broker.stages.listening.server.counts.rejected == 3


def test_the_count_of_unknown_requests_is_bounded() -> None:
    with broker() as running:
        metrics = running.broker.stages.storage.metrics
        for key in range(1000, 2000):
            metrics.count_unsupported(key, 0)
        metrics.count_unsupported(1000, 0)

        assert len(metrics.unsupported) <= 256
        assert metrics.unsupported[1000, 0] == 2


def test_answers_come_in_the_order_of_pipelined_requests(client: RawClient) -> None:
    client.send(API_VERSIONS, 0, ApiVersionsRequest())
    client.send(METADATA, 12, MetadataRequest(topics=[]))
    client.send(API_VERSIONS, 4, POLITE)

    kinds = [type(client.receive()).__name__ for _ in range(3)]

    assert kinds == ["ApiVersionsResponse", "MetadataResponse", "ApiVersionsResponse"]


def test_a_client_without_a_client_id_is_served(address: str) -> None:
    with RawClient(address, client_id=None) as nameless:
        assert call(nameless, 4).error_code == ErrorCode.NONE
        assert call(nameless, 0).error_code == ErrorCode.NONE


def _frame(key: int, version: int, correlation_id: int = 1, body: bytes = b"") -> bytes:
    content = struct.pack(">hhih", key, version, correlation_id, -1) + body
    return struct.pack(">i", len(content)) + content


def _read(client: RawClient, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += client.socket.recv(size - len(data)) or pytest.fail("closed")
    return data
