"""Partitions of rows: keys are where Java's clients put them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.murmur2 import murmur2
from penstock.spark.errors import WrongOption
from penstock.spark.exactly_once.partitions import hashes, partitions_of


@given(st.lists(st.one_of(st.binary(max_size=20), st.sampled_from((255, 256, 257, 1000)).map(bytes))))
def test_hashes_are_those_of_java_clients(keys: list[bytes]) -> None:
    assert hashes(pa.array(keys, pa.binary())).tolist() == [murmur2(key) for key in keys]
    assert hashes(pa.array([b"other", *keys], pa.binary())[1:]).tolist() == [murmur2(key) for key in keys]


def test_keys_have_the_partitions_that_were_seen_of_java() -> None:
    keys = pa.array([b"key %d" % number for number in range(20)])
    found = partitions_of(keys, None, 3, 0, "orders").tolist()
    assert "".join(map(str, found)) == "12201121202210000012"


def test_rows_without_a_key_take_the_turn_and_named_partitions_win() -> None:
    keys = pa.array([None, b"key 0", None, b"key 0"], pa.binary())
    named = pa.array([None, None, 0, 2], pa.int32())
    assert partitions_of(keys, named, 3, 5, "orders").tolist() == [2, 1, 0, 2]
    assert partitions_of(None, named, 3, 4, "orders").tolist() == [1, 1, 0, 2]


def test_a_partition_that_the_topic_does_not_have_is_refused() -> None:
    with pytest.raises(WrongOption, match="a row has partition 3, and orders has 3 partitions"):
        partitions_of(None, pa.array([0, 3], pa.int32()), 3, 0, "orders")
