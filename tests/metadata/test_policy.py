"""What decides about a topic's partitions where several places have a say."""

from __future__ import annotations

import pytest

from penstock.metadata.configs import config_records, settle_min_isr
from penstock.metadata.image import BROKER, TOPIC
from penstock.metadata.policy import MIN_ISR, UNCLEAN, min_isr
from penstock.wire.metadata_records import ConfigRecord
from tests.metadata.stage import Stage

ALL_BROKERS = (BROKER, "")
THE_TOPIC = (TOPIC, "t")


@pytest.mark.parametrize(
    ("altered", "least", "unclean"),
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
    ids=["nothing", "all brokers", "topic", "both"],
)
def test_a_topic_config_overrides_that_of_all_brokers(
    altered: dict[tuple[int, str], dict[str, str]], least: int, unclean: bool
) -> None:
    """A controller that is no broker hears by the image alone of what was altered for all of them."""
    stage = Stage(3)
    stage.topic("t", [1, 2, 3])
    for resource, values in altered.items():
        stage.commit(config_records(stage.image, resource, values))
    assert min_isr(stage.image, "t", 3) == least
    assert stage.policy.unclean(stage.image, "t") == unclean


def test_the_minimum_isr_is_settled_once_for_all_brokers() -> None:
    stage = Stage(2)
    stage.commit([ConfigRecord(resource_type=BROKER, resource_name="1", name=MIN_ISR, value="1")])
    stage.topic("t", [1, 2])
    stage.fence(2)
    eligible = list(stage.partition().elr)

    stage.commit(settle_min_isr(stage.image, 3))

    assert stage.image.configs.get((BROKER, "1"), {}) == {}
    assert stage.image.configs[ALL_BROKERS] == {MIN_ISR: "2"}
    assert stage.partition().elr == eligible == [2]
    assert settle_min_isr(stage.image, 3) == []
