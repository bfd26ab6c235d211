from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.ids import TopicPartition
from penstock.reading.offsets import from_json, to_json
from penstock.reading.planning import OffsetRange, limited, plan, ranges_between

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 12))
offset_maps = st.dictionaries(partitions, st.integers(0, 10_000), max_size=8)


@settings(deadline=None)
@given(start=offset_maps, end=offset_maps)
def test_ranges_hold_all_that_is_new_and_nothing_else(
    start: dict[TopicPartition, int], end: dict[TopicPartition, int]
) -> None:
    ranges = ranges_between(start, end)
    assert {(each.topic, each.partition) for each in ranges} == {
        partition for partition, stop in end.items() if stop > start.get(partition, 0)
    }
    assert all(each.start == start.get(TopicPartition(each.topic, each.partition), 0) for each in ranges)
    assert ranges == sorted(ranges, key=lambda each: (each.topic, each.partition))


@settings(deadline=None)
@given(end=offset_maps, least=st.none() | st.integers(1, 40), most=st.none() | st.integers(1, 3000))
def test_tasks_cover_their_ranges_the_largest_first(
    end: dict[TopicPartition, int], least: int | None, most: int | None
) -> None:
    ranges = ranges_between({}, end)
    tasks = plan(ranges, min_partitions=least, max_records=most)
    joined: list[OffsetRange] = []
    for task in tasks:
        assert task.size > 0
        assert most is None or task.size <= most
        if joined and joined[-1].stop == task.start and joined[-1].partition == task.partition:
            joined[-1] = OffsetRange(task.topic, task.partition, joined[-1].start, task.stop)
        else:
            joined.append(task)
    assert joined == sorted(ranges, key=lambda each: -each.size)
    assert plan(ranges, min_partitions=least, max_records=most) == tasks


def test_minimum_partitions_are_shared_out_by_size() -> None:
    ranges = [OffsetRange("t", 0, 0, 300), OffsetRange("t", 1, 50, 150)]
    tasks = plan(ranges, min_partitions=4, max_records=None)
    assert [(task.partition, task.start, task.stop) for task in tasks] == [
        (0, 0, 100),
        (0, 100, 200),
        (0, 200, 300),
        (1, 50, 150),
    ]
    assert plan(ranges, min_partitions=2, max_records=None) == ranges


@settings(deadline=None)
@given(start=offset_maps, end=offset_maps, most=st.integers(1, 20_000))
def test_a_limit_holds_and_each_partition_advances(
    start: dict[TopicPartition, int], end: dict[TopicPartition, int], most: int
) -> None:
    nearer = limited(start, end, most)
    wanted, taken = ranges_between(start, end), ranges_between(start, nearer)
    assert nearer.keys() == end.keys()
    assert all(nearer[partition] <= end[partition] for partition in end)
    # rounding up gives each partition at most one offset more than its share
    assert sum(each.size for each in taken) <= most + len(taken)
    assert [each.partition for each in taken] == [each.partition for each in wanted]


def test_a_limit_is_divided_in_proportion_to_the_available_records() -> None:
    end = {TopicPartition("t", 0): 900, TopicPartition("t", 1): 100}
    assert limited({}, end, 100) == {TopicPartition("t", 0): 90, TopicPartition("t", 1): 10}
    assert limited({}, end, 1000) == end


@settings(deadline=None)
@given(offsets=offset_maps)
def test_offsets_as_json_have_their_keys_in_order(offsets: dict[TopicPartition, int]) -> None:
    tree = to_json(offsets)
    assert from_json(tree) == offsets
    assert list(tree) == sorted(tree)
    for numbers in tree.values():
        assert [int(number) for number in numbers] == sorted(map(int, numbers))
