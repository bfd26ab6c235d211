"""The listener of the nodes: the principal of an Envelope."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from penstock.broker.app.broker import Broker
from penstock.model.config.access_keys import STANDARD_AUTHORIZER
from penstock.model.errors import ErrorCode
from penstock.net.deferred import Deferred
from penstock.security.acls import Operation, PatternType, Permission, ResourceType
from penstock.security.principal import Principal, Session
from penstock.testing import cluster as thread_cluster
from penstock.wire.apis.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from penstock.wire.apis.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from penstock.wire.apis.envelope import ENVELOPE, EnvelopeRequest, EnvelopeResponse
from penstock.wire.messages import decode_response, encode_request
from penstock.wire.principals import encode_principal
from tests.broker.authorization.certified import Certified
from tests.broker.authorization.cluster_action import BOB, CONFIG, add_acls, allow_cluster_action
from tests.broker.nodes import cluster, eventually, run
from tests.secured import pki


async def envelope(
    broker: Broker,
    sender: Principal,
    principal: Principal | None,
    groups: Sequence[str] = (),
    topic: str = "made",
) -> EnvelopeResponse:
    """The response to the creation of a topic in the name of `principal`."""
    request = CreateTopicsRequest(topics=[CreatableTopic(name=topic, num_partitions=1, replication_factor=1)])
    inner = b"".join(map(bytes, encode_request(CREATE_TOPICS, 7, 1, None, request)))[4:]  # type: ignore[arg-type]
    outer = EnvelopeRequest(
        request_data=inner,
        request_principal=None if principal is None else encode_principal(principal, groups),
        client_host_address=b"\x7f\0\0\1",
    )
    frame = b"".join(map(bytes, encode_request(ENVELOPE, 0, 1, None, outer)))[4:]  # type: ignore[arg-type]
    assert broker.serving.internal_dispatcher is not None
    answer: Any = broker.serving.internal_dispatcher.serve(connection(broker, sender), memoryview(frame))
    if isinstance(answer, Deferred):
        await eventually(lambda: bool(answer.done))
        answer = answer.value
    written = b"".join(bytes(part) for part in answer)
    return decode_response(ENVELOPE, 0, memoryview(written)[4:])


def connection(broker: Broker, principal: Principal) -> Any:
    assert broker.stages.listening.internal is not None
    return SimpleNamespace(
        memo=None,
        peer="peer",
        listener=broker.stages.listening.internal.listener,
        session=Session(principal, "INTERNAL", "127.0.0.1"),
        rest=lambda: None,
    )


def codes(response: EnvelopeResponse) -> list[int]:
    assert response.error_code == ErrorCode.NONE
    assert response.response_data is not None
    inner = decode_response(CREATE_TOPICS, 7, memoryview(response.response_data))
    return [topic.error_code for topic in inner.topics]


def test_the_principal_of_an_envelope_counts_only_if_its_sender_has_cluster_action() -> None:
    async def main() -> None:
        async with cluster(1, config=CONFIG) as nodes:
            broker = await nodes.settled()
            admin = Principal("User", "admin")
            forged = await envelope(broker, BOB, admin)
            assert forged.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            await allow_cluster_action(nodes)
            denied = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
            assert codes(await envelope(broker, BOB, Principal("User", "eve"))) == denied
            assert codes(await envelope(broker, BOB, None)) == denied
            assert codes(await envelope(broker, BOB, admin)) == [ErrorCode.NONE]

    run(main())


def test_the_groups_of_a_token_are_roles_of_a_forwarded_request() -> None:
    """A DENY for a role would fail open if the Envelope lost the groups."""
    alice, create, topic = Principal("User", "alice"), Operation.CREATE, ResourceType.TOPIC

    async def main() -> None:
        async with cluster(1, config=CONFIG) as nodes:
            broker = await nodes.settled()
            await add_acls(
                nodes,
                (str(BOB), Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster", Permission.ALLOW),
                (str(alice), create, topic, "made", Permission.ALLOW),
                ("Role:suspended", create, topic, "made", Permission.DENY),
                ("Role:makers", create, topic, "other", Permission.ALLOW),
            )
            denied = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
            assert codes(await envelope(broker, BOB, alice, ["suspended"])) == denied
            assert codes(await envelope(broker, BOB, alice)) == [ErrorCode.NONE]
            assert codes(await envelope(broker, BOB, alice, topic="other")) == denied
            assert codes(await envelope(broker, BOB, alice, ["makers"], topic="other")) == [ErrorCode.NONE]

    run(main())


def test_the_principal_of_a_certificate_counts_when_its_request_is_forwarded() -> None:
    """Over mutual TLS from the client to a broker, and from that broker to the active controller."""
    certificates = pki()
    config = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,INTERNAL:SSL",
        "ssl.keystore.location": certificates["server"],
        "ssl.truststore.location": certificates["ca"],
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:broker",
    }
    with thread_cluster(brokers=2, config=config) as running:
        active = running.controller
        assert active is not None
        (other,) = set(running.ids) - {active}
        with (
            Certified(running.address(other), "alice") as alice,
            Certified(running.address(other), "server") as node,
        ):
            assert alice.create("t") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            grant = AclCreation(
                resource_type=ResourceType.TOPIC,
                resource_name="t",
                resource_pattern_type=PatternType.LITERAL,
                principal="User:alice",
                host="*",
                operation=Operation.CREATE,
                permission_type=Permission.ALLOW,
            )
            request = CreateAclsRequest(creations=[grant])
            denied = alice.call(CREATE_ACLS, 3, request).results[0].error_code
            assert denied == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert node.call(CREATE_ACLS, 3, request).results[0].error_code == ErrorCode.NONE
            assert alice.create("t") == ErrorCode.NONE
            assert alice.create("u") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
