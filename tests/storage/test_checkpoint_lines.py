"""Lines of offset checkpoints: each belongs to a topic id, those of earlier releases to every topic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import NO_TOPIC_ID, TopicPartition, format_topic_id
from penstock.storage.checkpoint import format_checked
from penstock.storage.checkpoint_lines import (
    UNEXPLAINED,
    UNVERIFIED,
    CheckpointLine,
    format_lines,
    has_topic_ids,
    is_of_topic,
    parse_lines,
)
from tests.storage.earlier_releases import of_version_0

KEY = TopicPartition("a.b-c_D", 3)
ID, OTHER = format_topic_id(b"1" * 16), format_topic_id(b"2" * 16)

_KEYS = st.builds(
    TopicPartition, st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 2**31 - 1)
)
_LINES = st.builds(
    CheckpointLine,
    _KEYS,
    st.binary(min_size=16, max_size=16).map(format_topic_id) | st.just("-"),
    st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=2).map(tuple),
    st.sampled_from(["", UNEXPLAINED, UNVERIFIED]),
)


@given(st.lists(_LINES))
def test_lines_are_read_as_they_were_written(lines: list[CheckpointLine]) -> None:
    lost = format_topic_id(NO_TOPIC_ID)
    data = format_lines(lines)
    assert has_topic_ids(data)
    assert list(parse_lines(data)) == [
        line._replace(topic_id="-") if line.topic_id == lost else line for line in lines
    ]


def test_lines_of_earlier_releases_have_no_topic_id() -> None:
    (plain,) = parse_lines(of_version_0([f"{KEY.topic} 3 7"]))
    (checked,) = parse_lines(format_checked([f"{KEY.topic} 3 7 unexplained"]))
    (both,) = parse_lines(format_checked([f"{KEY.topic} 3 7 5"], version=2))
    assert plain == (KEY, "-", (7,), UNVERIFIED)
    assert checked == (KEY, "-", (7,), UNEXPLAINED)
    assert both == (KEY, "-", (7, 5), "")


@pytest.mark.parametrize("line", ["a 0", "a", "a x 1", "a 0 1 x"])
def test_a_line_without_a_partition_and_an_offset_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        list(parse_lines(format_checked([line])))


def test_an_unknown_topic_id_contradicts_no_other() -> None:
    assert is_of_topic(ID, ID)
    assert is_of_topic("-", ID)
    assert is_of_topic(ID, format_topic_id(NO_TOPIC_ID))
    assert not is_of_topic(OTHER, ID)
