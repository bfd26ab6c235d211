"""The driver's side: carries out the plans of `protocol` for one batch.

Invariant: the plan's decision is durable before the first transaction ends. A driver that fails in between is
resumed by the next one, which Spark starts for the same batch.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Final

from penstock.reading.connection import Cluster
from penstock.spark.exactly_once.coordinators import Coordinators
from penstock.spark.exactly_once.decisions import Decision, Prepared
from penstock.spark.exactly_once.journal import Journal
from penstock.spark.exactly_once.names import Names
from penstock.spark.exactly_once.producing import Producer
from penstock.spark.exactly_once.protocol import Plan, plan_abort, plan_commit, strays

__all__ = ["Driver"]

#: Ended ones stay in the list of transactional ids for days.
_NOT_ENDED: Final = ("Ongoing", "Empty")


class Driver:
    """Decides and ends the batches of one sink."""

    def __init__(self, cluster: Cluster, names: Names, topic: str) -> None:
        self._names = names
        self._coordinators = Coordinators(cluster)
        self._journal = Journal(cluster, topic)

    def commit(self, query: str, batch: int, prepared: Sequence[Prepared]) -> None:
        """Return when the transactions of the batch are committed, and no other is left open."""
        me, last = self._take_over(query)
        plan = plan_commit(last, query, batch, prepared, time.time_ns() // 1_000_000)
        self._carry_out(plan, me, last, query, (), batch)

    def abort(self, query: str, batch: int, prepared: Sequence[Prepared], runs: Collection[str]) -> None:
        """Return when no transaction of these runs is left open; a batch that was decided is committed."""
        me, last = self._take_over(query)
        self._carry_out(plan_abort(last, batch, prepared), me, last, query, runs, batch)

    def close(self, query: str) -> None:
        """The query will write nothing more. Its decision goes away."""
        self._journal.close_query(
            self._coordinators, self._coordinators.begin(self._names.driver(query), two_phase=False), query
        )

    def _take_over(self, query: str) -> tuple[Producer, Decision | None]:
        """Fence earlier drivers; what they have decided is then final, and is read."""
        me = self._coordinators.begin(self._names.driver(query), two_phase=False)
        return me, self._journal.last(query)

    def _carry_out(
        self,
        plan: Plan,
        me: Producer,
        last: Decision | None,
        query: str,
        runs: Collection[str],
        batch: int,
    ) -> None:
        if plan.decision is not None:
            self._journal.write(self._coordinators, me, plan.decision)
            last = plan.decision
        self._coordinators.commit(plan.commit, is_resumed=plan.is_resumed)
        self._coordinators.abort(plan.abort)
        # An attempt that has not begun its transaction yet is fenced as well.
        listed = self._coordinators.listed(self._names.query_pattern(query), _NOT_ENDED)
        ended = {each.transactional_id for each in plan.abort}
        found = strays(self._names, listed, query, batch, last, runs)
        self._coordinators.fence(each for each in found if each not in ended)
