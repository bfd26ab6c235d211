"""What a node that waits for a quorum lacks, and the log event that says it, once a minute.

A node without a quorum waits for as long as it takes: if every voter gave up after a time of its own, voters
that are started one after the other would never meet.

Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from penstock.broker.base.logs import get_logger
from penstock.raft.messages import NO_NODE
from penstock.raft.quorum import Quorum
from penstock.raft.state import Recovery

__all__ = ["describe_wait", "log_wait", "reason_for_silence"]

log = get_logger("quorum")
#: how often a wait is logged
INTERVAL_S: Final = 60.0
#: a voter that has sent nothing for this long is not there
_SEEN_MS: Final = 10_000.0


def describe_wait(quorum: Quorum) -> dict[str, Any]:
    """The fields of the log event: all voters, those that this node hears, those it does not, the reason."""
    others = [voter.key.id for voter in quorum.voters.others(quorum.key.id)]
    seen = [node for node in others if _is_seen(quorum, node)]
    return {
        "voters": [voter.key.id for voter in quorum.voters],
        "seen": seen,
        "not_seen": [node for node in others if node not in seen],
        "reason": reason_for_silence(quorum),
    }


def _is_seen(quorum: Quorum, node: int) -> bool:
    heard_ms = quorum.heard.get(node)
    return heard_ms is not None and node not in quorum.gone and quorum.now_ms - heard_ms < _SEEN_MS


def _has_leader(quorum: Quorum) -> bool:
    return quorum.is_leader or (quorum.leader_id != NO_NODE and _is_seen(quorum, quorum.leader_id))


def reason_for_silence(quorum: Quorum) -> str:
    """Which node leads the quorum, or what this node lacks to elect one."""
    if quorum.leader_id != NO_NODE:
        return f"node {quorum.leader_id} leads epoch {quorum.epoch} and accepts no requests"
    recovery = quorum.state.recovery
    if recovery in (Recovery.NONE, Recovery.NEW):
        return f"epoch {quorum.epoch} has no leader"
    others = ", ".join(str(voter.key.id) for voter in quorum.voters.others(quorum.key.id))
    if recovery == Recovery.FORGOTTEN:
        return (
            f"this node has lost its votes: it votes once all voters are there, or joins a leader that the "
            f"voters {others} elect. Start them; `penstock quorum recover` is for voters that are lost"
        )
    return (
        f"this node's metadata log was damaged, or removed by `penstock quorum rejoin`; it waits until "
        f"the voters {others} elect a leader to fetch from. Start them; docs/cluster.md describes the "
        f"recovery if they are damaged, too"
    )


@contextmanager
def log_wait(quorum: Quorum, first_s: float) -> Iterator[None]:
    """Log `waiting_for_majority` while the body waits: after `first_s`, then once a minute.

    A node that hears its leader waits for something else.
    """
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def report() -> None:
        nonlocal timer
        if not _has_leader(quorum):
            log.warning("waiting_for_majority", **describe_wait(quorum))
        timer = loop.call_later(INTERVAL_S, report)

    timer = loop.call_later(first_s, report)
    try:
        yield
    finally:
        timer.cancel()
