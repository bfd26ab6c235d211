"""The config of a mirrored topic."""

from __future__ import annotations

import pytest

from penstock.model.config.mirrored_topics import (
    Cut,
    MirroredTopic,
    MirrorState,
    check_mirrored_topic,
    check_order,
)
from penstock.model.errors import InvalidConfig, PolicyViolation
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
    assert TOPIC._replace(state=state).is_read_only == (state.value not in ("promoted", "lifted"))
    topic = TOPIC._replace(state=state, fence=1764000000000)
    assert MirroredTopic.parse(str(topic)) == topic
    topic = topic._replace(is_lifted=True)
    assert MirroredTopic.parse(str(topic)) == topic
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
        f"west/promoting.lifted/{'A' * 22}/orders",
        f"west/promoting.7.raised/{'A' * 22}/orders",
        f"west/promoting.7.lifted.lifted/{'A' * 22}/orders",
        f"west/promoting.0.lifted/{'A' * 22}/orders",
    ],
)
def test_other_values_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="is not LINK/STATE/ID/TOPIC"):
        MirroredTopic.parse(text)
    assert check_mirrored_topic(text)


def test_no_value_is_no_mirror() -> None:
    assert check_mirrored_topic("") is None
    assert check_mirrored_topic(str(TOPIC)) is None


def test_a_request_of_an_older_promotion_changes_no_fence() -> None:
    """A broker that was slow fences, or lifts the fence, behind a newer promotion."""
    fenced = [str(TOPIC._replace(state=MirrorState.FENCED, fence=n)) for n in (1, 2)]
    lifted = [str(TOPIC._replace(state=MirrorState.LIFTED, fence=n)) for n in (1, 2)]
    in_order = ["", fenced[0], lifted[0], fenced[1], lifted[1]]
    for at, value in enumerate(in_order):
        for later in in_order[at:]:
            check_order(value, later)
        for earlier in in_order[1:at]:
            with pytest.raises(PolicyViolation, match="has begun promotion"):
                check_order(value, earlier)
        # A user removes it, and another link has numbers of its own.
        check_order(value, "")
        check_order(value, str(TOPIC._replace(link="north", state=MirrorState.FENCED, fence=1)))


def test_a_promotion_that_was_given_up_does_not_go_on() -> None:
    promoting = TOPIC._replace(state=MirrorState.PROMOTING, fence=7)
    check_order(str(TOPIC._replace(state=MirrorState.FENCING, fence=7)), str(promoting))
    check_order(str(TOPIC), str(promoting._replace(fence=0)))
    for given_up in (TOPIC._replace(fence=7), TOPIC._replace(state=MirrorState.FENCING, fence=8)):
        with pytest.raises(PolicyViolation, match="promotion 7 of"):
            check_order(str(given_up), str(promoting))


def test_the_fence_of_a_promotion_that_was_given_up_is_lifted_in_later_states() -> None:
    """But not the one of a promotion with a fence, and of a failover out of it."""
    mirrored = TOPIC._replace(fence=7)
    promoting = mirrored.behind(MirrorState.PROMOTING)
    assert all(each.lifts_fence for each in (mirrored, promoting, promoting.behind(MirrorState.CLOSING)))
    fenced = mirrored._replace(state=MirrorState.PROMOTING)
    assert not any(each.lifts_fence for each in (TOPIC, fenced, fenced.behind(MirrorState.CLOSING)))
    # A late request of the fenced promotion does not turn the other one into it.
    with pytest.raises(PolicyViolation, match=r"promotion 7 of orders\.eu was given up"):
        check_order(str(promoting), str(fenced))
    check_order(str(mirrored), str(promoting))
