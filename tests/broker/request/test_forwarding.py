"""Admin requests through whichever broker a client has found; the controller carries them out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from struct import pack
from typing import Any

import pytest

from penstock.broker.base.context import Context
from penstock.broker.handlers.topics import TopicHandlers
from penstock.broker.node import producer_ids
from penstock.broker.request import forwarding
from penstock.broker.request.forwarding import Caller
from penstock.metadata.image import BROKER, TOPIC
from penstock.model.config.access_keys import STANDARD_AUTHORIZER
from penstock.model.errors import ErrorCode
from penstock.security.principal import Principal
from penstock.wire.api import Api
from penstock.wire.apis.allocate_producer_ids import ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest
from penstock.wire.apis.create_topics import CREATE_TOPICS
from penstock.wire.apis.delete_topics import (
    DELETE_TOPICS,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from penstock.wire.apis.envelope import ENVELOPE, EnvelopeRequest
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from penstock.wire.apis.produce import PRODUCE
from penstock.wire.schema import Struct
from tests.broker.events import Events
from tests.broker.groups import coordinator
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import make_topic
from tests.broker.topic_configs import alter
from tests.broker.topics import create

_LOGGER = 8


#: sends a request again soon, but not before the end of a fetch that waits
_IMPATIENT = {"controller.quorum.request.timeout.ms": "700", "controller.quorum.fetch.timeout.ms": "60000"}


async def follower(nodes: Cluster) -> int:
    controller = await nodes.settled()
    return next(node for node in nodes.brokers if node != controller.stages.config.node_id)


def test_configs_and_deletions_go_to_the_controller() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            node = await follower(nodes)
            image = nodes[node].stages.cluster.image
            assert await create(nodes, node, "topic") == ErrorCode.NONE
            assert await alter(nodes, node, TOPIC, "topic", "retention.ms", "1234") == ErrorCode.NONE
            assert image.topic_configs("topic") == {"retention.ms": "1234"}
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name="topic")], timeout_ms=5000)
            (answer,) = (await nodes.call(node, DELETE_TOPICS, request)).responses
            assert answer.error_code == ErrorCode.NONE and "topic" not in image.topics

    run(main())


def test_another_change_is_not_taken_for_the_requested_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker answers when it has applied this change, not when it has applied any change."""
    monkeypatch.setattr("penstock.broker.request.forwarding._CATCH_UP_S", 60)

    async def main() -> None:
        async with cluster(3) as nodes:
            node = await follower(nodes)
            controller = (await nodes.settled()).stages.config.node_id
            loader = nodes[node].stages.cluster.node.loader
            follow, busy, go_on, release = loader.on_applied, *(asyncio.Event() for _ in range(3))

            async def take_time(records: Sequence[Struct]) -> None:
                busy.set()
                await go_on.wait()
                await follow(records)

            async def rest() -> None:
                await release.wait()

            loader.on_applied = take_time
            assert await create(nodes, controller, "another") == ErrorCode.NONE
            await busy.wait()
            requested = asyncio.create_task(create(nodes, node, "topic"))
            await eventually(lambda: "topic" in nodes[controller].stages.cluster.image.topics)
            # When it has followed the other change, it does not get to this one yet.
            held = asyncio.create_task(loader.between_changes(rest))
            await asyncio.sleep(0)
            go_on.set()
            answered, _ = await asyncio.wait([requested], timeout=0.1)
            assert not answered
            release.set()
            assert await requested == ErrorCode.NONE
            assert "topic" in nodes[node].stages.cluster.image.topics
            await held

    run(main())


def test_configs_of_any_broker_are_altered_through_any_broker_and_reach_it() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await nodes.settled()
            key = "max.connections.per.ip"
            assert await alter(nodes, 1, BROKER, "3", key, "77") == ErrorCode.NONE
            await eventually(lambda: nodes[3].stages.config.max_connections_per_ip == 77)
            assert nodes[1].stages.config.max_connections_per_ip != 77
            assert await alter(nodes, 1, BROKER, "9", key, "77") == ErrorCode.INVALID_REQUEST

    run(main())


def test_loggers_are_altered_where_they_are() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            node = await follower(nodes)
            request = IncrementalAlterConfigsRequest(
                resources=[AlterConfigsResource(resource_type=_LOGGER, resource_name=str(node), configs=[])]
            )
            (answer,) = (await nodes.call(node, INCREMENTAL_ALTER_CONFIGS, request)).responses
            assert answer.error_code == ErrorCode.NONE

    run(main())


def test_a_topic_that_a_client_mentions_is_made() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            node = await follower(nodes)
            request = MetadataRequest(topics=[MetadataRequestTopic(name="mentioned")])
            request.allow_auto_topic_creation = True
            (topic,) = (await nodes.call(node, METADATA, request)).topics
            assert topic.error_code == ErrorCode.NONE and len(topic.partitions) == 1

    run(main())


def test_no_two_brokers_give_out_the_same_producer_id() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            request = InitProducerIdRequest(transaction_timeout_ms=1000)
            answers = [await nodes.call(node, INIT_PRODUCER_ID, request) for node in (1, 2, 3, 1, 2, 3)]
            assert all(answer.error_code == ErrorCode.NONE for answer in answers)
            assert len({answer.producer_id for answer in answers}) == 6
            controller = await nodes.settled()
            stale = AllocateProducerIdsRequest(broker_id=1, broker_epoch=0)
            answer = await nodes.call(
                controller.stages.config.node_id, ALLOCATE_PRODUCER_IDS, stale, internal=True
            )
            assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH

    run(main())


@pytest.mark.parametrize(("api", "version"), [(PRODUCE, 9), (CREATE_TOPICS, 99)])
def test_an_envelope_holds_only_apis_of_the_controller(api: Api[Any, Any], version: int) -> None:
    async def main() -> None:
        async with cluster(1) as nodes:
            header = pack(">hhihB", api.key, version, 0, -1, 0)
            request = EnvelopeRequest(request_data=header, client_host_address=bytes(4))
            answer = await nodes.call(1, ENVELOPE, request, internal=True)
            assert answer.error_code == ErrorCode.INVALID_REQUEST

    run(main())


def test_requests_survive_the_controllers_death() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            controller = await nodes.settled()
            node = await follower(nodes)
            requested = asyncio.gather(*(create(nodes, node, f"topic-{n}") for n in range(5)))
            await nodes.kill(controller.stages.config.node_id)
            answers = set(await requested)
            # The response may have been lost with its controller: then the second attempt finds the topic.
            assert answers <= {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
            await eventually(
                lambda: {f"topic-{n}" for n in range(5)} <= set(nodes[node].stages.cluster.image.topics)
            )

    run(main())


def test_a_slow_controller_gets_no_second_request() -> None:
    """What it has not answered yet it will do: a second request would find that the topic exists already."""

    async def main() -> None:
        async with cluster(3, config=_IMPATIENT) as nodes:
            controller = await nodes.settled()
            node = await follower(nodes)
            async with controller.stages.cluster.node.controller._turn.held(False):
                requested = asyncio.create_task(create(nodes, node, "topic"))
                answered, _ = await asyncio.wait([requested], timeout=0.9)
                assert not answered
            assert await requested == ErrorCode.NONE

    run(main())


def test_the_principal_of_a_request_reaches_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's principal and address, not those of the broker that passes the request on (KIP-590)."""
    seen: list[tuple[str, str, str | None, tuple[str, ...]]] = []

    async def serve(_: TopicHandlers, context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        seen.append((str(context.principal), context.host, context.client_id, context.session.groups))
        return DeleteTopicsResponse()

    monkeypatch.setattr(TopicHandlers, "delete_topics", serve)

    async def nowhere() -> None:
        raise AssertionError("this node is not the controller")

    async def main() -> None:
        async with cluster(3) as nodes:
            node = await follower(nodes)
            request = DeleteTopicsRequest(timeout_ms=5000)
            await nodes.call(node, DELETE_TOPICS, request)
            alice = Caller(Principal("User", "alice"), "2001:db8::7", "alices-client", ("ops",))
            await nodes[node].stages.cluster.forwarding.forward(DELETE_TOPICS, 6, request, nowhere, alice)

    run(main())
    assert seen == [
        ("User:ANONYMOUS", "127.0.0.1", "test", ()),
        ("User:alice", "2001:db8::7", "alices-client", ("ops",)),
    ]


def test_a_forwarded_request_has_one_event_for_all_its_denials(events: Events) -> None:
    """The controller audits the client, not the broker that forwarded the request."""

    async def nowhere() -> None:
        raise AssertionError("this node is not the controller")

    async def main() -> None:
        rights = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
        async with cluster(3, config=rights) as nodes:
            node = await follower(nodes)
            topics = [DeleteTopicState(name=f"t{n}") for n in range(50)]
            request = DeleteTopicsRequest(topics=topics, timeout_ms=5000)
            alice = Caller(Principal("User", "alice"), "10.0.0.7", "alices-client")
            response = await nodes[node].stages.cluster.forwarding.forward(
                DELETE_TOPICS, 6, request, nowhere, alice
            )
            codes = {each.error_code for each in response.responses}
            assert codes == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
            assert sum(len(broker.stages.listening.audit._open) for broker in nodes.brokers.values()) == 0

    run(main())
    ((_, denied),) = events.of("access_denied")
    assert (denied["principal"], denied["host"], denied["denials"]) == ("User:alice", "10.0.0.7", 50)


def test_producers_learn_soon_that_there_is_no_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of many producers may find a broker with an id, instead of waiting for those before it."""
    monkeypatch.setattr(producer_ids, "_PATIENCE_S", 0.1)

    async def main() -> None:
        async with cluster(3) as nodes:
            node = await follower(nodes)
            for other in set(nodes.brokers) - {node}:
                await nodes.kill(other)
            request = InitProducerIdRequest(transaction_timeout_ms=1000)
            answers = await asyncio.gather(*(nodes.call(node, INIT_PRODUCER_ID, request) for _ in range(100)))
            assert {answer.error_code for answer in answers} == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}

    run(main())


def test_metadata_without_a_controller_lists_the_known_topics_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics that cannot be created now must not keep a client from existing ones."""
    monkeypatch.setattr(forwarding, "_CREATION_S", 0.1)

    async def main() -> None:
        async with cluster(1, 1) as nodes:
            await make_topic(nodes, 2, name="known", min_isr=1)
            await nodes.kill(1)
            names = ["known", "missing", "other"]
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=True
            )
            async with asyncio.timeout(60):
                topics = (await nodes.call(2, METADATA, request)).topics
                found = await coordinator(nodes, 2)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert [(t.name, t.error_code) for t in topics] == list(
                zip(names, (ErrorCode.NONE, unknown, unknown), strict=True)
            )
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(main())
