"""The simple assignor of share groups."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from penstock.groups.share_assignor import assign_shares

TOPIC = bytes(16)


@pytest.mark.parametrize(("members", "partitions"), [(1, 5), (3, 3), (3, 10), (10, 3), (7, 1), (200, 50)])
def test_every_partition_and_every_member_has_one(members: int, partitions: int) -> None:
    wanted = {f"m{n:03}": [(TOPIC, index) for index in range(partitions)] for n in range(members)}
    found = assign_shares(wanted, {})
    counts = Counter(index for target in found.values() for index in target[TOPIC])
    assert set(counts) == set(range(partitions))
    assert max(counts.values()) - min(counts.values()) <= 1
    sizes = [len(target[TOPIC]) for target in found.values()]
    assert max(sizes) - min(sizes) <= 1


def test_members_keep_what_they_have() -> None:
    wanted = {f"m{n}": [(TOPIC, index) for index in range(4)] for n in range(2)}
    before = assign_shares(wanted, {})
    assert assign_shares(wanted, before) == before
    wanted["m2"] = wanted["m0"]
    after = assign_shares(wanted, before)
    assert all(after[m][TOPIC] & before[m][TOPIC] for m in before)


def test_different_subscriptions() -> None:
    rng = random.Random(1)
    for _ in range(100):
        wanted = {
            f"m{n}": [(TOPIC, index) for index in range(8) if rng.random() < 0.4]
            for n in range(rng.randrange(1, 9))
        }
        found = assign_shares(wanted, {})
        for member, target in found.items():
            assert {(TOPIC, i) for i in target.get(TOPIC, ())} <= set(wanted[member])
            assert bool(target) == bool(wanted[member])
        assigned = {i for target in found.values() for i in target.get(TOPIC, ())}
        assert assigned == {i for partitions in wanted.values() for _, i in partitions}
