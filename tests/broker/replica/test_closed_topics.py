"""Which topics refuse the appends of clients, and why."""

from __future__ import annotations

import pytest

from penstock.broker.replica.closed_topics import check_open, is_closed, is_mirror
from penstock.model.errors import InvalidTopic, PolicyViolation
from penstock.storage.config import LogConfig


def test_an_ordinary_topic_takes_appends() -> None:
    assert not is_closed("orders", LogConfig())
    check_open("orders", LogConfig())


@pytest.mark.parametrize(
    ("topic", "config", "error"),
    [
        ("__consumer_offsets", LogConfig(), InvalidTopic),
        ("orders", LogConfig(penstock_restoring=True), PolicyViolation),
    ],
)
def test_a_closed_topic_names_its_reason(topic: str, config: LogConfig, error: type[Exception]) -> None:
    assert is_closed(topic, config)
    assert not is_mirror(config)
    with pytest.raises(error, match=topic):
        check_open(topic, config)
