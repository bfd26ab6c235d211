"""Quotas on the listener of the nodes: only principals with ClusterAction are exempt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest

from penstock.model.config.access_keys import STANDARD_AUTHORIZER
from penstock.model.errors import ErrorCode
from penstock.security.acls import Operation, PatternType, Permission, ResourceType
from penstock.testing import Cluster
from penstock.testing import cluster as thread_cluster
from penstock.wire.apis.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlteredEntry,
    OpData,
)
from penstock.wire.apis.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from penstock.wire.apis.describe_client_quotas import EntityData
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from tests.broker.authorization.certified import Certified
from tests.broker.raw import RawClient
from tests.secured import pki
from tests.waiting import eventually

_AUTHORIZED = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:broker"}


def started(stack: ExitStack, config: Mapping[str, str]) -> Cluster:
    """A cluster whose every user has next to no request time."""
    certificates = pki()
    secured = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,INTERNAL:SSL",
        "ssl.keystore.location": certificates["server"],
        "ssl.truststore.location": certificates["ca"],
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/",
        **config,
    }
    running = stack.enter_context(thread_cluster(brokers=2, config=secured))
    entry = AlteredEntry(
        entity=[EntityData(entity_type="user", entity_name=None)],
        ops=[OpData(key="request_percentage", value=1e-6)],
    )
    with Certified(running.address(1), "server") as node:
        (result,) = node.call(ALTER_CLIENT_QUOTAS, 1, AlterClientQuotasRequest(entries=[entry])).entries
        assert result.error_code == ErrorCode.NONE
    nodes = [running._running(each) for each in running.ids]
    eventually(lambda: all(each.broker.serving.quotas.has_any for each in nodes))
    return running


@pytest.fixture(scope="module")
def authorized() -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield started(stack, _AUTHORIZED)


def internal_address(running: Cluster) -> str:
    internal = running._running(1).broker.stages.listening.internal
    assert internal is not None
    return f"127.0.0.1:{internal.listener.port}"


def throttle_ms(client: RawClient) -> int:
    return int(client.call(METADATA, 12, MetadataRequest(topics=None)).throttle_time_ms)


def test_a_certificate_of_the_nodes_authority_has_quotas(authorized: Cluster) -> None:
    with Certified(internal_address(authorized), "alice") as alice:
        assert throttle_ms(alice) > 0


def test_nodes_have_none(authorized: Cluster) -> None:
    with Certified(internal_address(authorized), "server") as node:
        assert [throttle_ms(node) for _ in range(3)] == [0, 0, 0]
    assert authorized.controller is not None


def test_cluster_action_makes_a_node(authorized: Cluster) -> None:
    grant = AclCreation(
        resource_type=ResourceType.CLUSTER,
        resource_name="kafka-cluster",
        resource_pattern_type=PatternType.LITERAL,
        principal="User:intruder",
        host="*",
        operation=Operation.CLUSTER_ACTION,
        permission_type=Permission.ALLOW,
    )
    with Certified(internal_address(authorized), "server-renamed") as client:
        assert throttle_ms(client) > 0
    with Certified(internal_address(authorized), "server") as node:
        response = node.call(CREATE_ACLS, 3, CreateAclsRequest(creations=[grant]))
        assert response.results[0].error_code == ErrorCode.NONE
    with Certified(internal_address(authorized), "server-renamed") as client:
        assert throttle_ms(client) == 0


def test_without_an_authorizer_all_on_the_internal_listener_are_nodes() -> None:
    with ExitStack() as stack:
        running = started(stack, {})
        with Certified(internal_address(running), "alice") as alice:
            assert throttle_ms(alice) == 0
