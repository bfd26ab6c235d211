"""Brokers with one guard removed: the simulator must find each within a few seeds.

The quick part of `make mutants`: the guards that are missed soonest.
"""

from __future__ import annotations

import pytest

from tests.testing.simulation.archive_mutants import ARCHIVE_MUTANTS
from tests.testing.simulation.mutants import MUTANTS, Mutant, hunt
from tests.testing.simulation.share_mutants import SHARE_MUTANTS

_SEEDS_MAX = 24
#: what takes more seeds, or longer ones, is for `make mutants`
_SLOW = {
    "fsync before vote",
    "one vote per epoch",
    "votes compare logs",
    "committed-epoch rule",
    "reads end at the high watermark",
    # What most seeds would append is refused as a gap.
    "stale answers do not count",
    "missing logs are reported",
    "logs match their manifest",
    "manifests agree on the epoch",
    "a new disk does not vote",
    "recovery waits for every replica",
    "the most complete replica recovers",
    "committed records are set aside",
    "holes are damage, and do not match the manifest",
    "the manifest records the log start",
    "unexplained log starts are not adopted",
    "foreign files are ignored",
    "a wrong clock deletes nothing",
    "rebuilds need brokers",
    "rebuilds end when the broker is back",
    "old replicas stay until the new are in sync",
    "a wrong clock does not lead",
    "a lost vote makes another voter",
    "damage is found and mended",
    "a lack of descriptors is no disk failure",
    "loaded decisions wait for their commit",
    "duplicates before guards",
    "the LSO waits for replicated markers",
    "markers have a higher epoch",
    "followers take any marker",
    "pending decisions before producer ids",
    "partitions are added together",
    "markers pass through the group shard",
    *(mutant.guard for mutant in (*SHARE_MUTANTS, *ARCHIVE_MUTANTS)),
}

#: The seed that found a removed guard with the least work, where the seeds before it did not, or took longer.
#: It is tried first.
_FOUND_BY = {
    "damaged metadata logs are merged": 4,
    "all voters together replace forgotten votes": 1,
    "failed syncs are final": 15,
    "new roles count what is synced": 4,
    "epoch-start check": 4,
    "maximal ISR": 19,
    "compare-and-set of the ISR": 4,
    "truncation by epoch": 18,
    "markers wait for the committed decision": 20,
    "broker epoch (controller)": 17,
    "broker epoch (leader: fetches, joins)": 46,
    "deletion ends at the high watermark": 6,
    "retention keeps what is young": 3,
    "metadata is checked": 2,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant", [m for m in MUTANTS if m.guard not in _SLOW], ids=lambda mutant: str(mutant.guard)
)
def test_a_removed_guard_is_missed(mutant: Mutant) -> None:
    assert hunt(mutant, _SEEDS_MAX, _FOUND_BY.get(mutant.guard, 0)) is not None


def test_the_slow_ones_are_there() -> None:
    assert {mutant.guard for mutant in MUTANTS} >= _SLOW | _FOUND_BY.keys()
