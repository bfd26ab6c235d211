"""What decides about a topic's partitions where several places have a say."""

from __future__ import annotations

import pytest

from penstock.metadata.configs import config_records
from penstock.metadata.image import BROKER, TOPIC
from penstock.metadata.policy import MIN_ISR, UNCLEAN, Policy
from tests.metadata.stage import Stage

ALL_BROKERS = (BROKER, "")
THE_TOPIC = (TOPIC, "t")


@pytest.mark.parametrize(
    ("altered", "min_isr", "unclean"),
    [
        ({}, 2, False),
        ({ALL_BROKERS: {MIN_ISR: "1", UNCLEAN: "true"}}, 1, True),
        ({THE_TOPIC: {MIN_ISR: "3", UNCLEAN: "true"}}, 3, True),
        (
            {ALL_BROKERS: {MIN_ISR: "1", UNCLEAN: "true"}, THE_TOPIC: {MIN_ISR: "3", UNCLEAN: "false"}},
            3,
            False,
        ),
    ],
    ids=["file", "all brokers", "topic", "both"],
)
def test_a_topic_decides_then_all_brokers_then_the_file(
    altered: dict[tuple[int, str], dict[str, str]], min_isr: int, unclean: bool
) -> None:
    """A controller that is no broker hears by the image alone of what was altered for all of them."""
    stage = Stage(3, Policy(min_insync_replicas=2))
    stage.topic("t", [1, 2, 3])
    for resource, values in altered.items():
        stage.commit(config_records(stage.image, resource, values))
    assert stage.policy.min_isr(stage.image, "t", 3) == min_isr
    assert stage.policy.unclean(stage.image, "t") == unclean
