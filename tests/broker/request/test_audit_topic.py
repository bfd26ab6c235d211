"""Audit events in the topic `__audit`: written by every broker, in order, and by no client."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.audit.chain import Chain, Head
from penstock.audit.verification import Verifier, read_entry
from penstock.broker.app.routes import DATA_CHANGES
from penstock.broker.base.audit_details import names_resources
from penstock.broker.base.audit_queue import AuditQueue
from penstock.broker.produce.topic_writer import TopicWriter
from penstock.broker.request import audit_topic
from penstock.broker.request.audit_topic import AuditTopic
from penstock.model.errors import ErrorCode
from penstock.model.ids import AUDIT_TOPIC, TopicId
from penstock.records.record import iter_batches, iter_records
from penstock.storage.log import Log
from penstock.testing import broker
from penstock.wire.apis.create_topics import CREATE_TOPICS
from penstock.wire.apis.describe_quorum import DESCRIBE_QUORUM
from penstock.wire.apis.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from penstock.wire.apis.produce import (
    PRODUCE,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.broker.events import Events
from tests.broker.nodes import cluster, eventually, run
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    batch_of,
    create_topic,
    describe_topic,
    fetch,
    produce_request,
    read_all,
    until,
)
from tests.broker.topics import create


def test_every_audited_request_names_its_resources() -> None:
    listed = {CREATE_TOPICS, DESCRIBE_QUORUM, LIST_PARTITION_REASSIGNMENTS}
    with broker(config={"penstock.audit.destination": "topic"}) as running:
        forwarded = running.broker.serving.routes.forwarded.keys()
    assert listed <= forwarded
    assert {api.name for api in forwarded if not names_resources(api.request)} == {
        DESCRIBE_QUORUM.name,
        LIST_PARTITION_REASSIGNMENTS.name,
    }
    assert all(names_resources(api.request) for api in DATA_CHANGES)


def test_changes_are_in_the_topic_and_clients_cannot_write_to_it() -> None:
    config = {"penstock.audit.destination": "topic"}
    with broker(config=config) as running, RawClient(running.bootstrap, client_id="me") as client:
        create_topic(client, "audited")
        until(lambda: describe_topic(client, AUDIT_TOPIC).error_code == ErrorCode.NONE)
        described = describe_topic(client, AUDIT_TOPIC)
        assert described.is_internal
        topic = Topic(AUDIT_TOPIC, TopicId(described.topic_id))
        # The broker opens the partition after it has applied the metadata.
        until(lambda: bool(fetch(client, topic, 0).records))
        (found,) = [json.loads(record.value or b"") for record in read_all(client, topic)]
        named = {name: found[name] for name in ("event", "api", "client_id", "class_uid", "principal")}
        assert named == {
            "event": "metadata_changed",
            "api": "CreateTopics",
            "client_id": "me",
            "class_uid": 6003,
            "principal": "User:ANONYMOUS",
        }
        assert found["node_id"] == 1 and found["time"] > 0
        assert found["resources"] == [{"type": "TOPIC", "name": "audited"}]
        request = produce_request(topic, batch_of([b"forged"]), version=7)
        (answer,) = client.call(PRODUCE, 7, request).responses[0].partition_responses
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_brokers_send_their_events_to_the_leader() -> None:
    async def main() -> None:
        settings = {"penstock.audit.destination": "topic", "penstock.audit.topic.replication.factor": "3"}
        async with cluster(3, config=settings) as nodes:
            controller = await nodes.settled()
            assert await create(nodes, controller.stages.config.node_id, "first") == ErrorCode.NONE
            await eventually(lambda: AUDIT_TOPIC in controller.stages.cluster.image.topics)
            for node in nodes.brokers:
                # As a failed login there would do.
                queue = nodes[node].stages.listening.audit_queue
                assert queue is not None
                queue.put({"time": 1, "principal": "User:x", "event": f"of {node}"})
            leader = nodes[controller.stages.cluster.image.topics[AUDIT_TOPIC].partitions[0].leader]

            def written() -> set[str]:
                found = leader.stages.storage.partitions.find(AUDIT_TOPIC, 0)
                return set() if isinstance(found, ErrorCode) else events_of(found.log)

            await eventually(lambda: {f"of {node}" for node in nodes.brokers} <= written())

    run(main())


def events_of(log: Log) -> set[str]:
    """The names of all committed events. A read may return a part of what there is."""
    names, offset = set(), 0
    while offset < log.high_watermark:
        found = log.read(offset, 1 << 20, upper=log.high_watermark)
        assert found is not None
        data = found.read()
        for position, header in iter_batches(data):
            for record in iter_records(data[position : position + header.size]):
                names.add(json.loads(record.value or b"")["event"])
                offset = record.offset + 1
    return names


class Stage:
    """An `AuditTopic` of broker 1 whose partition is led by broker 2."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, results: Iterable[Any], checkpoint_s: float = 0.0
    ) -> None:
        """Each result is an error code, an exception, or a function of the events of a batch."""
        monkeypatch.setattr(audit_topic, "_PAUSE_FIRST_S", 0.0)
        self.results = iter(results)
        self.sent: list[tuple[int, int]] = []
        #: the events of all attempts
        self.lines: list[bytes] = []
        self.queue = AuditQueue(100)
        topic = SimpleNamespace(id=bytes(16), partitions={0: SimpleNamespace(leader=2)})
        image: Any = SimpleNamespace(topics={AUDIT_TOPIC: topic})
        unused: Any = None
        clock: Any = SimpleNamespace(now_ms=lambda: 1)
        writer = TopicWriter(1, image, unused, self.send)
        chain = Chain("1/topic/x")
        self.topic = AuditTopic(
            self.queue, unused, image, 1, clock, writer, chain=chain, checkpoint_s=checkpoint_s
        )

    async def send(self, node_id: int, request: ProduceRequest) -> ProduceResponse:
        data = request.topic_data[0].partition_data[0].records
        assert data is not None
        events = [json.loads(record.value or b"") for record in iter_records(bytes(data))]
        self.sent.append((node_id, len(events)))
        self.lines += [record.value or b"" for record in iter_records(bytes(data))]
        result = next(self.results)
        if callable(result):
            result = result([event.get("n") for event in events])
        if isinstance(result, Exception):
            raise result
        answer = PartitionProduceResponse(index=0, error_code=result)
        topic = TopicProduceResponse(name=AUDIT_TOPIC, partition_responses=[answer])
        return ProduceResponse(responses=[topic])


def test_events_stay_in_the_queue_until_they_are_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        results = [TimeoutError(), ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE, ErrorCode.NONE]
        stage = Stage(monkeypatch, results)
        for _ in range(3):
            stage.queue.put({"time": 1, "principal": "User:x"})
        stage.topic.start()
        assert await stage.queue.emptied(10.0)
        await stage.topic.stop()
        # The last one is the end of the chain.
        assert stage.sent == [(2, 3)] * 3 + [(2, 1)]
        assert stage.lines[:3] == stage.lines[3:6] == stage.lines[6:9], "the same events are sent again"
        verifier = Verifier(repeats=True)
        for line in stage.lines:
            verifier.take(read_entry("", line, b""))
        verifier.end()
        assert (verifier.findings, verifier.events) == ([], 4)

    asyncio.run(main())


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD])
def test_an_event_that_the_topic_refuses_does_not_delay_later_events(
    code: ErrorCode, monkeypatch: pytest.MonkeyPatch, events: Events
) -> None:
    """The same batch was sent again for ever."""
    written: list[int] = []

    def result(numbers: list[int]) -> ErrorCode:
        if 7 in numbers:
            return code
        written.extend(n for n in numbers if n is not None)
        return ErrorCode.NONE

    async def main() -> None:
        verifier = Verifier()
        stage = Stage(monkeypatch, itertools.repeat(result))
        for n in range(10):
            stage.queue.put({"time": 1, "principal": "User:x", "event": "access_denied", "n": n})
        stage.topic.start()
        assert await stage.queue.emptied(10.0)
        await stage.topic.stop()
        assert stage.queue.take_lost() == 1
        assert len(stage.sent) < 16
        accepted = {json.loads(line)["hash"]: line for line in stage.lines if b'"n":7' not in line}
        for line in list(accepted.values())[-10:]:
            verifier.take(read_entry("", line, b""))
        assert len({json.loads(line)["seq"] for line in accepted.values()}) == 10, "no number is missing"

    asyncio.run(main())
    assert written == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    ((_, fields),) = events.of("audit_event_refused")
    assert (fields["audit_event"], fields["error"]) == ("access_denied", code.name)


def test_a_restarted_broker_continues_its_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first event of a chain names the last one of the start before."""
    monkeypatch.setattr(audit_topic, "_DRAIN_S", 60.0)
    config = {"penstock.audit.destination": "topic"}
    values: list[bytes] = []
    for n in range(2):
        with broker(data=tmp_path, config=config) as running, RawClient(running.bootstrap) as client:
            create_topic(client, f"audited-{n}")
            queue = running.broker.stages.listening.audit_queue
            assert queue is not None
            # An event leaves the queue when it is committed.
            until(lambda: not len(queue))  # noqa: B023
            topic = Topic(AUDIT_TOPIC, TopicId(describe_topic(client, AUDIT_TOPIC).topic_id))
            values = [record.value or b"" for record in read_all(client, topic)]
    verifier = Verifier()
    for value in values:
        verifier.take(read_entry("", value, b""))
    verifier.end()
    assert not verifier.findings
    first, second = verifier.heads
    assert [json.loads(value)["event"] for value in values] == [
        "metadata_changed",
        "audit_stopped",
        "metadata_changed",
    ]
    assert Head(**json.loads(values[2])["previous"]) == verifier.heads[first]
    assert second != first


def test_a_chain_ends_when_its_broker_stops_also_if_a_checkpoint_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        stage = Stage(monkeypatch, itertools.repeat(ErrorCode.NONE), checkpoint_s=0.01)
        stage.topic.start()
        stage.queue.put({"time": 1, "principal": "User:x", "event": "access_denied"})
        await eventually(lambda: len(stage.lines) >= 2)
        time.sleep(0.05)  # noqa: ASYNC251 - the time of the next checkpoint is over when the loop goes on
        await asyncio.sleep(0)
        await stage.topic.stop()
        assert json.loads(stage.lines[-1])["event"] == "audit_stopped"

    asyncio.run(main())


def test_a_chain_without_events_gets_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        stage = Stage(monkeypatch, itertools.repeat(ErrorCode.NONE), checkpoint_s=0.01)
        stage.topic.start()
        await asyncio.sleep(0.05)  # five intervals without a checkpoint
        assert not len(stage.queue), "a chain that has not begun has none"
        stage.queue.put({"time": 1, "principal": "User:x", "event": "access_denied"})
        await eventually(lambda: len(stage.lines) >= 3)
        await stage.topic.stop()
        names = [json.loads(line)["event"] for line in stage.lines]
        assert names[:3] == ["access_denied", "audit_checkpoint", "audit_checkpoint"]
        assert names[-1] == "audit_stopped"

    asyncio.run(main())
