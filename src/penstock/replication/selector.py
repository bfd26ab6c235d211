"""Which replica a consumer should read from: one in its own rack, if the leader is not there (KIP-392)."""

from __future__ import annotations

from collections.abc import Callable

from penstock.replication.leader import LeaderState

__all__ = ["preferred_read_replica"]


def preferred_read_replica(
    leader: LeaderState, rack: str, fetch_offset: int, rack_of: Callable[[int], str | None]
) -> int | None:
    """The in-sync replica in `rack` that has `fetch_offset` and is the most caught up; None for the leader.

    `rack_of` gives the rack of a live broker, None for one that clients cannot reach.
    """
    if not rack or rack_of(leader.broker) == rack:
        return None
    candidates = [
        (progress.end_offset, progress.caught_up_at, replica)
        for replica, progress in leader.followers.items()
        if replica in leader.isr
        and progress.log_start_offset <= fetch_offset <= progress.end_offset
        and rack_of(replica) == rack
    ]
    return max(candidates)[2] if candidates else None
