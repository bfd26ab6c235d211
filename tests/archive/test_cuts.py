"""Transactions around a cut: each is decided the same way in all partitions."""

from __future__ import annotations

from random import Random

import pytest

from penstock.archive.cuts import Decision, Marker, PartitionTransactions, newest_at, resolve
from penstock.model.ids import TopicPartition
from tests.amounts import amount

A, B, C = (TopicPartition("t", n) for n in range(3))
NOTHING = Decision(frozenset(), ())


def marker(offset: int, *, epoch: int = 1, committed: bool = True, timestamp: int = 0) -> Marker:
    return Marker(offset, 7, epoch, committed, timestamp)


def test_a_transaction_that_is_open_everywhere_is_aborted() -> None:
    assert resolve({A: PartitionTransactions(10, {7: 0}), B: PartitionTransactions(10, {7: 0})}) == {
        A: NOTHING,
        B: NOTHING,
    }


def test_a_commit_that_one_partition_lacks_is_completed() -> None:
    """All records are there: only the marker came later."""
    found = resolve(
        {
            A: PartitionTransactions(10, {}, [marker(9)]),
            B: PartitionTransactions(20, {7: 0}, [marker(20)]),
        }
    )
    assert found == {A: NOTHING, B: Decision(frozenset({7}), ())}


def test_a_commit_with_missing_records_is_turned_into_an_abort() -> None:
    found = resolve(
        {
            A: PartitionTransactions(10, {}, [marker(9)]),
            B: PartitionTransactions(20, {}, [marker(22)], {7: 21}),
        }
    )
    assert found == {A: Decision(frozenset(), (9,)), B: NOTHING}


def test_the_next_transaction_of_a_producer_is_another_one() -> None:
    """The records behind the end belong to the transaction after the one that is decided."""
    earlier = {A: marker(9, epoch=1), B: marker(18, epoch=1)}
    found = resolve(
        {
            A: PartitionTransactions(10, {}, [earlier[A]]),
            B: PartitionTransactions(20, {}, [earlier[B], marker(25, epoch=2)], {7: 21}),
        }
    )
    assert found == {A: NOTHING, B: NOTHING}


def test_transactions_of_one_epoch_are_separated_by_time() -> None:
    found = resolve(
        {
            A: PartitionTransactions(10, {}, [marker(9, timestamp=100)]),
            B: PartitionTransactions(20, {}, [marker(18, timestamp=101), marker(25, timestamp=500)], {7: 21}),
        }
    )
    assert found == {A: NOTHING, B: NOTHING}


def test_aborted_transactions_need_nothing() -> None:
    found = resolve(
        {
            A: PartitionTransactions(10, {}, [marker(9, committed=False)]),
            B: PartitionTransactions(20, {7: 0}, [marker(21, committed=False)], {7: 20}),
        }
    )
    assert found == {A: NOTHING, B: NOTHING}


@pytest.mark.parametrize("seed", range(amount(400)))
def test_no_transaction_is_half_there(seed: int) -> None:
    """Random transactions over three partitions, and ends that were taken at different moments."""
    rng = Random(seed)
    keys = [A, B, C]
    logs: dict[TopicPartition, list[tuple[str, int, int]]] = {key: [] for key in keys}
    clock = 0

    def write(key: TopicPartition, kind: str, epoch: int) -> None:
        nonlocal clock
        clock += 1
        logs[key].append((kind, epoch, clock))

    outcome = {}
    for epoch in range(1, 6):
        chosen = rng.sample(keys, rng.randrange(1, 4))
        for _ in range(rng.randrange(1, 5)):
            write(rng.choice(chosen), "record", epoch)
        members = [key for key in keys if any(e == epoch for _, e, _ in logs[key])]
        kind = rng.choice(["commit", "abort"])
        outcome[epoch] = kind
        for key in rng.sample(members, len(members)):
            write(key, kind, epoch)
    window = rng.randrange(clock), rng.randrange(clock + 1)
    views, ends = {}, {}
    for key in keys:
        taken = rng.randint(min(window), max(window))
        ends[key] = end = sum(at <= taken for *_, at in logs[key])
        view = views[key] = PartitionTransactions(end)
        running: int | None = None
        for offset, (kind, epoch, at) in enumerate(logs[key]):
            if kind == "record":
                running = epoch
                if offset >= end:
                    view.later.setdefault(7, offset)
            else:
                view.markers.append(Marker(offset, 7, epoch + 1, kind == "commit", at))
                running = None
            if offset == end - 1 and running is not None:
                view.open[7] = running
    decisions = resolve(views)
    for epoch, kind in outcome.items():
        results = set()
        for key in keys:
            seen = logs[key][: ends[key]]
            if not any(k == "record" and e == epoch for k, e, _ in logs[key]):
                continue
            everything = sum(k == "record" and e == epoch for k, e, _ in logs[key])
            here = sum(k == "record" and e == epoch for k, e, _ in seen)
            found = next((n for n, (k, e, _) in enumerate(seen) if k != "record" and e == epoch), None)
            if found is not None:
                visible = kind == "commit" and found not in decisions[key].aborted_markers
            else:
                visible = here > 0 and 7 in decisions[key].committed
            results.add("whole" if visible and here == everything else "part" if visible else "none")
        assert results in ({"whole"}, {"none"}), (seed, epoch, kind, results)


def test_the_newest_cut_at_a_moment() -> None:
    times = {"a": 100, "b": 200, "c": 300}
    assert newest_at(times, None) == "c"
    assert newest_at(times, 299) == newest_at(times, 200) == "b"
    assert newest_at(times, 99) is None and newest_at({}, None) is None
