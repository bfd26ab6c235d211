"""The return of a topic to a link: cuts are taken only from current leaders, and begin leader epochs."""

from __future__ import annotations

import pytest

from penstock.metadata.configs import config_records
from penstock.metadata.image import TOPIC
from penstock.metadata.mirror_cuts import new_epochs
from penstock.model.config.mirrored_topics import LINK_CONFIG, Cut, MirroredTopic, MirrorState
from penstock.model.errors import PolicyViolation
from penstock.model.ids import TopicId
from tests.metadata.stage import Stage

SOURCE = TopicId(b"s" * 16)
RETURNING = MirroredTopic("east", MirrorState.RETURNING, SOURCE, "t")


def stage_of(topic: MirroredTopic | None) -> Stage:
    stage = Stage(3)
    stage.topic("t", [1, 2, 3], [2, 3, 1])
    if topic is not None:
        set_link(stage, topic)
    return stage


def set_link(stage: Stage, topic: MirroredTopic) -> None:
    values = {**stage.image.topic_configs("t"), LINK_CONFIG: str(topic)}
    stage.commit(config_records(stage.image, (TOPIC, "t"), values) + new_epochs(stage.image, "t", str(topic)))


def cuts(stage: Stage, *offsets: int) -> MirroredTopic:
    epochs = [stage.partition(index=index).leader_epoch for index in range(2)]
    found = tuple(Cut(*each) for each in zip(offsets, epochs, strict=False))
    return RETURNING._replace(state=MirrorState.MIRRORING, cuts=found)


def test_cuts_begin_a_leader_epoch_of_each_partition_with_the_same_leader() -> None:
    stage = stage_of(RETURNING)
    before = [(stage.partition(index=n).leader, stage.partition(index=n).leader_epoch) for n in range(2)]
    wanted = cuts(stage, 30, 0)
    set_link(stage, wanted)
    after = [(stage.partition(index=n).leader, stage.partition(index=n).leader_epoch) for n in range(2)]
    assert after == [(leader, epoch + 1) for leader, epoch in before]
    assert [stage.partition(index=n).isr for n in range(2)] == [[1, 2, 3], [2, 3, 1]]
    # The same value again, and a state that keeps its cuts, begin none.
    set_link(stage, wanted)
    set_link(stage, wanted._replace(state=MirrorState.PROMOTING))
    assert [stage.partition(index=n).leader_epoch for n in range(2)] == [epoch for _, epoch in after]


@pytest.mark.parametrize(
    "state",
    [None, RETURNING._replace(state=MirrorState.MIRRORING), RETURNING._replace(state=MirrorState.PROMOTED)],
)
def test_only_a_returning_topic_is_cut(state: MirroredTopic | None) -> None:
    stage = stage_of(state)
    with pytest.raises(PolicyViolation, match="only while it returns to a link"):
        new_epochs(stage.image, "t", str(cuts(stage, 5, 5)))


def test_cuts_of_former_leaders_are_refused() -> None:
    stage = stage_of(RETURNING)
    wanted = str(cuts(stage, 5, 5))
    stage.fence(2)
    with pytest.raises(PolicyViolation, match="t-1 has another leader than when it was compared"):
        new_epochs(stage.image, "t", wanted)
    stage.fence(1, 3)
    with pytest.raises(PolicyViolation, match="t-0 has another leader"):
        new_epochs(stage.image, "t", str(cuts(stage, 5, 5)))


def test_each_partition_has_a_cut() -> None:
    stage = stage_of(RETURNING)
    with pytest.raises(PolicyViolation, match="2 partitions, and 1 cuts"):
        new_epochs(stage.image, "t", str(cuts(stage, 5)))
