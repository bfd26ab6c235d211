"""New topics in the controller: many in one change."""

from __future__ import annotations

import pytest

from penstock.broker.node.controller import Controller
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.storage.memory import MemoryFiles
from penstock.wire.apis.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequest,
)
from penstock.wire.apis.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from tests.broker.conftest import penstock_only
from tests.broker.disks import on_disk
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    append,
    topic_exists,
)

#: of a request for 100 topics
CHANGES_MAX = 5


@penstock_only
def test_many_topics_are_made_and_removed_in_few_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An append, a commit and an apply for each topic would take seconds for thousands of them.

    One change for all of them would hold the event loop: large requests are divided.
    """
    changes: list[int] = []
    appended = Controller._append

    def counted(self: Controller, batch: bytearray, count: int) -> int:
        end_offset = appended(self, batch, count)
        changes.append(end_offset)
        return end_offset

    with on_disk(MemoryFiles()) as running, RawClient(running.bootstrap) as client:
        monkeypatch.setattr(Controller, "_append", counted)
        names = [f"many-{i}" for i in range(100)]
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in names]
        created = client.call(CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics, timeout_ms=10_000)).topics
        assert {t.error_code for t in created} == {ErrorCode.NONE}
        assert len(changes) <= CHANGES_MAX
        for name in (names[0], names[-1]):
            append(client, Topic(name, TopicId(created[names.index(name)].topic_id)), b"x", partition=1)

        states = [DeleteTopicState(name=name) for name in names]
        request = DeleteTopicsRequest(topics=states, timeout_ms=10_000)
        deleted = client.call(DELETE_TOPICS, 6, request).responses
        assert {t.error_code for t in deleted} == {ErrorCode.NONE}
        assert len(changes) <= 2 * CHANGES_MAX
        assert not topic_exists(client, names[50])
