"""A leader of a three-replica partition to start tests from."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.replication.leader import LeaderState

MAX_LAG_MS = 30_000


@dataclass
class Registered:
    epoch: int
    fenced: bool = False
    in_controlled_shutdown: bool = False
    rack: str | None = None


class Cluster:
    """Brokers 1 to 3, registered in epochs 101 to 103; 1 leads in epoch 5."""

    def __init__(self) -> None:
        self.brokers = {n: Registered(100 + n) for n in (1, 2, 3)}

    def leader(
        self,
        *,
        isr: tuple[int, ...] = (1, 2, 3),
        replicas: tuple[int, ...] = (1, 2, 3),
        end_offset: int = 10,
        high_watermark: int = 10,
        min_isr: int = 2,
        now_ms: int = 0,
    ) -> LeaderState:
        return LeaderState(
            broker=1,
            broker_epoch=101,
            leader_epoch=5,
            partition_epoch=20,
            replicas=replicas,
            isr=isr,
            min_isr=min_isr,
            end_offset=end_offset,
            local_end=end_offset,
            high_watermark=high_watermark,
            brokers=self.brokers.get,
            max_lag_ms=MAX_LAG_MS,
            now_ms=now_ms,
        )


def fetch(leader: LeaderState, replica: int, offset: int, now_ms: int = 0) -> None:
    """A follower's fetch that should change no ISR."""
    assert leader.follower_fetched(replica, 100 + replica, offset, 0, now_ms) is None
