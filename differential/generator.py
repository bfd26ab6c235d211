"""A seed's operations."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from random import Random
from typing import Final

from differential import admin_operations as admin
from differential import data_operations as data
from differential import group_operations as groups
from differential import streams_operations as streams
from differential import transaction_operations as transactions
from differential.model import Model
from differential.operations import Operation

__all__ = ["KINDS", "generate"]

Make = Callable[[Model], Operation]
#: the operations and their frequencies, by the name that selects them
KINDS: Final[dict[str, tuple[tuple[Make, int], ...]]] = {
    "produce": ((data.produce, 14),),
    "fetch": ((data.fetch, 10), (data.fetch_session, 12)),
    "idempotence": (
        (data.produce_idempotent, 8),
        (data.init_producer, 2),
        (data.describe_producers, 2),
    ),
    "records": ((data.delete_records, 3),),
    "offsets": (
        (data.list_offsets, 6),
        (data.end_offsets, 2),
        (groups.commit, 7),
        (groups.committed, 7),
        (groups.delete_offsets, 2),
    ),
    "topics": (
        (admin.create_topics, 4),
        (admin.delete_topics, 2),
        (admin.create_partitions, 2),
        (admin.metadata, 4),
        (admin.describe_topics, 2),
    ),
    "configs": (
        (admin.describe_configs, 3),
        (admin.incremental_alter_configs, 4),
        (admin.alter_configs, 1),
    ),
    "classic": ((groups.classic_member, 10),),
    "consumer": ((groups.consumer_member, 10),),
    "streams": ((streams.streams_member, 10), (streams.describe_streams, 3)),
    "groups": (
        (groups.delete_group, 1),
        (groups.describe_groups, 4),
        (groups.list_groups, 2),
        (groups.find_coordinator, 1),
    ),
    "transactions": (
        (transactions.transaction_step, 16),
        (transactions.describe_transactions, 2),
        (transactions.list_transactions, 1),
    ),
}
#: requests that may be mangled: in any form, they create no topic and no member that delays a rebalance
_MANGLED: Final = ("produce", "fetch", "offsets", "groups")
_MANGLED_SHARE: Final = 0.06
_FIRST_TOPICS: Final = 3


def generate(
    seed: int,
    count: int,
    versions: dict[int, tuple[int, int]],
    only: Collection[str] = (),
) -> list[Operation]:
    """The operations of a seed: `count` of the kinds in `only`, or of all, after some topics."""
    random = Random(seed)
    model = Model(random, versions, topics_change=not only or "topics" in only)
    makers: list[Make] = []
    weights: list[int] = []
    for kind in only or KINDS:
        for make, weight in KINDS[kind]:
            makers.append(make)
            weights.append(weight)
    operations = []
    while len(model.topics) < _FIRST_TOPICS:
        operations.append(admin.create_topics(model))
    for make in random.choices(makers, weights, k=count):
        operation = make(model)
        if operation.kind in _MANGLED and operation.answered and random.random() < _MANGLED_SHARE:
            operation = replace(operation, mangle=random.getrandbits(32), binds=None)
        operations.append(operation)
    return operations
