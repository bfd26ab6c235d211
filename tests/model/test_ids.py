from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import METADATA_TOPIC_ID, TopicPartition, format_topic_id, parse_topic_id


def test_a_topic_id_has_kafkas_text() -> None:
    """`Uuid.METADATA_TOPIC_ID` of Kafka."""
    assert format_topic_id(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert parse_topic_id("AAAAAAAAAAAAAAAAAAAAAQ") == METADATA_TOPIC_ID


@given(st.binary(min_size=16, max_size=16))
def test_an_id_is_read_back(raw: bytes) -> None:
    assert parse_topic_id(format_topic_id(raw)) == raw


@pytest.mark.parametrize(
    "text",
    [
        "",
        "short",
        "A" * 21,
        "A" * 23,
        "A" * 22 + "==",
        "A" * 22 + "!!",
        "A" * 10 + "\n" + "A" * 12,
        "AAAAAAAAAAAAAAAAAAAAA/",
        "AAAAAAAAAAAAAAAAAAAAAB",
        "ÄAAAAAAAAAAAAAAAAAAAAA",
    ],
)
def test_texts_that_are_no_id_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a topic id"):
        parse_topic_id(text)


def test_a_partition_has_the_name_of_its_folder_in_kafka() -> None:
    assert str(TopicPartition("a-b", 3)) == "a-b-3"
