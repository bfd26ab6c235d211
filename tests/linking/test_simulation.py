"""Two clusters and a link, simulated: all faults of both, a bad network, failovers, promotions, returns.

`make links` runs more seeds (`LINK_SEEDS`). Each mutant breaks one rule, and a seed finds it.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from penstock.linking.committed import GroupMirror
from penstock.linking.common_point import CommonPoint, Range
from penstock.linking.mirror import Answer, Hold, PartitionMirror, Phase, Step
from penstock.model.config.mirrored_topics import Cut, MirroredTopic, MirrorState
from penstock.replication.follower import FetchPosition
from tests.amounts import amount, known_first
from tests.linking.simulated_clusters import Log, SimulatedCluster
from tests.linking.simulated_link import LinkSimulation, Violation
from tests.linking.simulated_runs import run

SEEDS = int(os.environ.get("LINK_SEEDS", "0")) or amount(40)
#: of a mutant, until one of them finds it
HUNTED = 400


def test_no_seed_breaks_an_invariant() -> None:
    happened: Counter[str] = Counter()
    for seed in range(SEEDS):
        happened.update(line.split()[1] for line in run(seed).trace)
    if SEEDS >= 40:
        # The seeds have all of it.
        assert min(happened[each] for each in ("failover", "promoted", "returned")) >= 3, happened


def _without_comparison(self: PartitionMirror, answer: Answer, now_ms: int) -> bool:
    self._verified = True
    return True


def _compares_whole_batches_only(
    self: PartitionMirror, sent: FetchPosition, start: int, end: int, now_ms: int
) -> Step:
    """Take a source that begins within the last batch for one that begins behind it."""
    if start > sent.fetch_offset and end >= self._log.end_offset:
        self._verified = True
        return Hold.NOTHING
    return _LISTED(self, sent, start, end, now_ms)


_LISTED = PartitionMirror.listed


def _starts_over(self: PartitionMirror, sent: FetchPosition, start: int, end: int, now_ms: int) -> Step:
    """Take a source that ends before the mirror for one whose retention was fast."""
    self._verified, self.skips_to = True, -1
    return Hold.NOTHING


def _completes_at_once(self: PartitionMirror, now_ms: int) -> None:
    self.phase = Phase.STOPPED if self._stops else Phase.MIRRORING


def _never_doubts(self: PartitionMirror) -> None:
    """Either of the two rules would find most of what the other one finds."""


def _by_the_last_batch(
    self: CommonPoint, log: Range, source: Range, epochs: object, mirrored_end: int | None
) -> None:
    """One equal batch at the end proves everything before it."""
    _COMMON_POINT_INIT(self, log, source, (), min(log.end, source.end))


_COMMON_POINT_INIT = CommonPoint.__init__


def _to_the_end(
    self: CommonPoint, log: Range, source: Range, epochs: object, mirrored_end: int | None
) -> None:
    """What is shorter than the source is a part of it."""
    _COMMON_POINT_INIT(self, log, Range(0, 0), (), None)
    self.offset = min(log.end, source.end)


def _commits_all(self: GroupMirror, source: dict, here: dict, mirrored: dict) -> dict:  # type: ignore[type-arg]
    return dict(source)


_ONLY_MIRRORED = property(
    lambda topic: topic.fence > 0 and topic.state is MirrorState.MIRRORING, doc="Forget it in later states."
)

MUTANTS: dict[str, tuple[object, str, object]] = {
    "the mirror appends without a comparison": (PartitionMirror, "_verify", _without_comparison),
    "the mirror goes on behind a new leader and lost requests": (PartitionMirror, "doubt", _never_doubts),
    "the mirror ignores what is left of a batch": (
        PartitionMirror,
        "listed",
        _compares_whole_batches_only,
    ),
    "the mirror starts over behind a shorter source": (PartitionMirror, "listed", _starts_over),
    "the mirror ignores the id of the topic": (LinkSimulation, "checks_topic_ids", False),
    "a promotion does not wait for responses": (PartitionMirror, "progressed", _completes_at_once),
    "a promotion ignores records that are not committed": (LinkSimulation, "waits_for_log_end", False),
    "a promotion does not fence": (LinkSimulation, "fences", False),
    "a promotion ignores open transactions": (Log, "open_transactions", 0),
    "a late request lifts the fence of a newer promotion": (SimulatedCluster, "orders_fences", False),
    "a promotion that is given up leaves its fence": (LinkSimulation, "lifts_fences", False),
    "a promotion without a fence forgets the former one": (MirroredTopic, "lifts_fence", _ONLY_MIRRORED),
    "one equal batch proves a whole log": (CommonPoint, "__init__", _by_the_last_batch),
    "a returning log is cut at the end of the source": (CommonPoint, "__init__", _to_the_end),
    "a cut takes records of later epochs": (Cut, "is_due", lambda cut, end, *_: end > cut.offset),
    "a cut begins no leader epoch": (SimulatedCluster, "cuts_begin_epochs", False),
    "a cut log is not copied": (SimulatedCluster, "cuts_are_copied", False),
    "committed offsets are beyond the mirror": (GroupMirror, "due", _commits_all),
}


#: the seeds that found mutants which few seeds find
KNOWN = {
    "the mirror ignores what is left of a batch": 2455,
    "the mirror starts over behind a shorter source": 281,
    "a promotion ignores records that are not committed": 114,
    "a promotion does not fence": 18,
    "a late request lifts the fence of a newer promotion": 1004,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_seed_finds_each_mutant(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, value = MUTANTS[name]
    monkeypatch.setattr(place, attribute, value)
    for seed in known_first(range(HUNTED), KNOWN.get(name, 0)):
        try:
            run(seed)
        except Violation:
            return
    pytest.fail(f"{HUNTED} seeds have not found: {name}")
