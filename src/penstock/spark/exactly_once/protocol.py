"""The rules of the sink: what a driver and a task attempt do, given the last decision of the query. Pure.

1. A task attempt writes in a two-phase transaction of its own, and leaves it open.
2. The driver fences earlier drivers of the query, and reads the last decision.
3. Without a decision for the batch, the driver writes one. It names the attempts that Spark has chosen.
4. The driver commits the transactions of the decision, and aborts all others of the query up to this batch.

Invariants:
- No transaction is committed before its decision is durable, and none is aborted that a decision names.
- A batch has one decision: a batch at or below the last decision is not written again.
- Attempts of a run that are not decided are aborted by that run, or after a decision of their batch: a driver
  that was replaced aborts nothing that its successor decides.
- An attempt that starts late does not leave an open transaction behind: it reads the decision after
  InitProducerId, and the driver lists transactional ids after the decision. One of them sees the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from penstock.spark.exactly_once.decisions import Decision, Prepared
from penstock.spark.exactly_once.names import Names

__all__ = ["Plan", "is_decided", "plan_abort", "plan_commit", "strays"]


class Plan(NamedTuple):
    """What the driver does with a batch, in the order of the fields."""

    #: written before anything else
    decision: Decision | None = None
    #: ended with a commit
    commit: tuple[Prepared, ...] = ()
    #: ended with an abort
    abort: tuple[Prepared, ...] = ()
    #: whether an earlier run wrote the decision, and may have committed the transactions
    is_resumed: bool = False


def is_decided(last: Decision | None, batch: int) -> bool:
    """Whether a batch is written, or will be without its tasks."""
    return last is not None and last.batch >= batch


def plan_commit(
    last: Decision | None, query: str, batch: int, prepared: Sequence[Prepared], now_ms: int
) -> Plan:
    """Spark has chosen one attempt for each partition of the batch."""
    if is_decided(last, batch):
        return _resume(last, batch, prepared)
    if not prepared:
        # A batch without rows is written whatever happens.
        return Plan()
    decision = Decision(query, batch, tuple(prepared), now_ms)
    return Plan(decision, commit=decision.transactions)


def plan_abort(last: Decision | None, batch: int, prepared: Sequence[Prepared]) -> Plan:
    """Spark gives the batch up. It also does so after a commit that failed: a decision stands."""
    if is_decided(last, batch):
        return _resume(last, batch, prepared)
    return Plan(abort=tuple(prepared))


def strays(
    names: Names, listed: Iterable[str], query: str, batch: int, last: Decision | None, runs: Collection[str]
) -> list[str]:
    """The listed transactional ids of the query whose transactions do not count.

    Attempts of later batches belong to another driver, which has fenced this one. As long as a batch is not
    decided, attempts of other runs than `runs` may count: another driver may be about to decide.
    """
    kept = last.ids if last is not None else frozenset()
    is_final = is_decided(last, batch)
    found = []
    for transactional_id in listed:
        name = names.parse(transactional_id)
        if name is None or name.query != query or name.batch > batch or transactional_id in kept:
            continue
        if is_final or (name.run in runs and name.batch == batch):
            found.append(transactional_id)
    return sorted(found)


def _resume(last: Decision | None, batch: int, prepared: Sequence[Prepared]) -> Plan:
    assert last is not None
    # A later batch begins only after all transactions of the one before have ended.
    commit = last.transactions if last.batch == batch else ()
    abort = tuple(each for each in prepared if each.transactional_id not in last.ids)
    return Plan(commit=commit, abort=abort, is_resumed=True)
