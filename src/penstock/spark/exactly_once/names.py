"""Transactional ids of the sink, and the patterns that find them. Pure.

`PREFIX.QUERY.RUN.BATCH.PARTITION.ATTEMPT` is the id of one task attempt, and `PREFIX.QUERY.driver` that of
the query's driver. PREFIX is an option, and QUERY is the query's id from its checkpoint, or the id of a
batch write.

Invariant: an id belongs to one attempt of one run. Why: InitProducerId fences every earlier producer of its
id, so an attempt that Spark has forgotten must not share the id of an attempt whose transaction was
decided.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["AttemptName", "Names", "run_name"]

_PARTS: Final = 6
_RUN_CHARACTERS: Final = 8


def run_name(run: str | None) -> str:
    """The part of a transactional id for a run, from its id; batch writes have one run."""
    return "job" if run is None else re.sub("[^0-9a-z]", "", run.lower())[:_RUN_CHARACTERS]


class AttemptName(NamedTuple):
    """The parts of a task attempt's transactional id behind the prefix."""

    query: str
    #: of the run of the query: each start has another one
    run: str
    batch: int
    partition: int
    #: a token of the attempt, unique over all runs
    attempt: str


class Names(NamedTuple):
    """The transactional ids with one prefix."""

    prefix: str

    def attempt(self, name: AttemptName) -> str:
        query, run, batch, partition, attempt = name
        return ".".join((self.prefix, query, run, str(batch), str(partition), attempt))

    def driver(self, query: str) -> str:
        return f"{self.prefix}.{query}.driver"

    def probe(self) -> str:
        """The id by which the driver asks whether the cluster has two-phase commit."""
        return f"{self.prefix}.probe"

    def parse(self, transactional_id: str) -> AttemptName | None:
        """The attempt that an id belongs to; None for any other id."""
        parts = transactional_id.rsplit(".", _PARTS - 1)
        if len(parts) != _PARTS or parts[0] != self.prefix:
            return None
        query, run, batch, partition, attempt = parts[1:]
        if not (batch.isdecimal() and partition.isdecimal()):
            return None
        return AttemptName(query, run, int(batch), int(partition), attempt)

    def query_pattern(self, query: str) -> str:
        """Matches the attempts of a query, as ListTransactions has it (RE2, the whole id)."""
        start = f"{re.escape(self.prefix)}[.]{re.escape(query)}"
        return f"{start}[.][0-9a-z]+[.][0-9]+[.][0-9]+[.].+"
