"""The times of a topic are two more of its configs."""

from __future__ import annotations

from penstock.broker.handlers.topic_times import with_times
from penstock.metadata.image import TopicImage
from penstock.model.config import BrokerConfig, describe_topic
from penstock.model.ids import TOPIC_CHANGED, TOPIC_CREATED, TopicId

ENTRIES = describe_topic(BrokerConfig(), {})


def topic(created_ms: int = 1, changed_ms: int = 2) -> TopicImage:
    return TopicImage("t", TopicId(bytes(16)), created_ms, changed_ms)


def test_times_follow_the_configs_and_are_read_only() -> None:
    shown = with_times(ENTRIES, topic(), None)
    assert [(e.name, e.value) for e in shown[len(ENTRIES) :]] == [(TOPIC_CREATED, "1"), (TOPIC_CHANGED, "2")]
    assert all(e.read_only for e in shown[len(ENTRIES) :])


def test_a_time_that_is_not_known_is_left_out() -> None:
    assert [e.name for e in with_times([], topic(created_ms=-1), None)] == [TOPIC_CHANGED]


def test_requested_names_are_in_the_order_of_the_request() -> None:
    names = [TOPIC_CHANGED, "retention.ms"]
    assert [e.name for e in with_times(ENTRIES, topic(), names)] == names
