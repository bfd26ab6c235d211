"""Sets committed offsets back to where a log will be cut."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cli.connection import Cluster
from penstock.cli.failure import Failure
from penstock.cli.offset_reset import Move, commit, committed_offsets

__all__ = ["limit_committed"]


def limit_committed(cluster: Cluster, ends: Mapping[tuple[str, int], int]) -> list[str]:
    """Set offsets that groups have committed behind `ends` back to them.

    Returns the groups whose offsets stay, because members read for them: these learn of the cut from fetches.
    """
    left = []
    listed = cluster.wait(cluster.admin.list_consumer_groups(request_timeout=cluster.timeout_s))
    for group in sorted(each.group_id for each in listed.valid):
        try:
            committed = committed_offsets(cluster, group)
            moves = [
                Move(*key, offset, ends[key])
                for key, offset in committed.items()
                if key in ends and offset > ends[key]
            ]
            if moves:
                commit(cluster, group, moves)
        except Failure:
            left.append(group)
    return left
