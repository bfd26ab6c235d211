"""The position of one follower, as its leader knows it.

A follower is caught up at the time of a fetch from the leader's end. Under steady writes it is always
slightly behind: so it also counts as caught up at the time of its *previous* fetch if it now fetches from the
end of that time.
"""

from __future__ import annotations

from typing import Final

__all__ = ["NEVER", "UNKNOWN_OFFSET", "FollowerProgress"]

UNKNOWN_OFFSET: Final = -1
#: a time before any other
NEVER: Final = -(1 << 62)


class FollowerProgress:
    """The position of one follower in this leader epoch."""

    __slots__ = (
        "_fetched_at",
        "_known_from",
        "_leader_end_then",
        "_left_isr_at",
        "broker_epoch",
        "caught_up_at",
        "end_offset",
        "log_start_offset",
    )

    def __init__(self, in_sync: bool, now_ms: int) -> None:
        self.end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        #: the broker epoch in its last fetch; None until it has fetched in this leader epoch
        self.broker_epoch: int | None = None
        #: an in-sync follower has the whole lag time to turn up; another holds nothing back until it fetches
        self.caught_up_at = now_ms if in_sync else NEVER
        #: when it was last known to be caught up, or when the leader began to observe it
        self._known_from = now_ms
        self._fetched_at = NEVER
        self._leader_end_then = UNKNOWN_OFFSET
        self._left_isr_at = NEVER

    def fetched(
        self, broker_epoch: int, fetch_offset: int, log_start_offset: int, leader_end: int, now_ms: int
    ) -> None:
        if fetch_offset >= leader_end:
            self.caught_up_at = max(self.caught_up_at, now_ms)
        elif fetch_offset >= self._leader_end_then:
            self.caught_up_at = max(self.caught_up_at, self._fetched_at)
        self.broker_epoch = broker_epoch
        self.end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self._leader_end_then = max(self._leader_end_then, leader_end)
        self._fetched_at = now_ms

    def left_isr(self, now_ms: int) -> None:
        """The controller has removed it from the ISR.

        Acks=all does not wait for it until it fetches again.
        """
        self._known_from = max(self._known_from, self.caught_up_at)
        self.caught_up_at = NEVER
        self._left_isr_at = now_ms

    def lag(self, leader_end: int, log_start: int, now_ms: int) -> tuple[int, int]:
        """The records that it lacks, and for how many milliseconds it has not had all of them.

        A follower that has not fetched in this leader epoch may lack all records from `log_start` on, or
        none. An in-sync one then counts as caught up. The time starts anew with each leader epoch.
        """
        behind = leader_end - max(self.end_offset, log_start)
        if behind <= 0 or (self.end_offset == UNKNOWN_OFFSET and self.caught_up_at != NEVER):
            return 0, 0
        return behind, max(0, now_ms - max(self._known_from, self.caught_up_at))

    @property
    def has_fetched_since(self) -> bool:
        """Returns true if the follower has fetched since it left the ISR, for any reason."""
        return self._fetched_at > self._left_isr_at

    def fetches(self, now_ms: int, max_lag_ms: int) -> bool:
        """Whether it has fetched lately, caught up or not."""
        return now_ms - self._fetched_at <= max_lag_ms

    def is_caught_up(self, leader_end: int, now_ms: int, max_lag_ms: int) -> bool:
        return self.end_offset >= leader_end or now_ms - self.caught_up_at <= max_lag_ms
