"""The config of a mirrored topic."""

from __future__ import annotations

import pytest

from penstock.model.config.mirrored_topics import Cut, MirroredTopic, MirrorState, check_mirrored_topic
from penstock.model.errors import InvalidConfig
from penstock.model.ids import TopicId

TOPIC = MirroredTopic("west", MirrorState.MIRRORING, TopicId(bytes(range(16))), "orders.eu")


@pytest.mark.parametrize("state", list(MirrorState))
def test_a_value_is_parsed_as_it_was_written(state: MirrorState) -> None:
    for ends in ((), (0,), (5, 0, 12)):
        topic = TOPIC._replace(state=state, ends=ends)
        assert MirroredTopic.parse(str(topic)) == topic
    for cuts in ((Cut(0, 0),), (Cut(5, 7), Cut(10**12, 3))):
        topic = TOPIC._replace(state=state, cuts=cuts)
        assert MirroredTopic.parse(str(topic)) == topic
    assert TOPIC._replace(state=state).is_read_only == (state is not MirrorState.PROMOTED)
    assert TOPIC._replace(state=state).is_fetched == (state in ("mirroring", "fencing", "promoting"))


@pytest.mark.parametrize(
    "text",
    [
        "west",
        "west/mirroring/x/orders",
        f"/mirroring/{'A' * 22}/orders",
        f"west/unknown/{'A' * 22}/orders",
        f"west/mirroring/{'A' * 22}/",
        f"west/mirroring/{'A' * 22}/a b",
        f"west/promoted/{'A' * 22}/orders/-1",
        f"west/promoted/{'A' * 22}/orders/1/2",
        f"west/promoted/{'A' * 22}/orders/x",
        f"west/mirroring/{'A' * 22}/orders/5@",
        f"west/mirroring/{'A' * 22}/orders/5@-1",
        f"west/mirroring/{'A' * 22}/orders/-5@1",
        f"west/mirroring/{'A' * 22}/orders/5@1,7",
    ],
)
def test_other_values_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="is not LINK/STATE/ID/TOPIC"):
        MirroredTopic.parse(text)
    assert check_mirrored_topic(text)


def test_no_value_is_no_mirror() -> None:
    assert check_mirrored_topic("") is None
    assert check_mirrored_topic(str(TOPIC)) is None
