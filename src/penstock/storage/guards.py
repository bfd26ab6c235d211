"""Verification guards: tokens of partitions whose transaction is being verified at the coordinator (KIP-890).

The first transactional batch of a producer and epoch takes a guard before it is verified. Its append needs
the same guard. Every append and every marker of the producer removes the guard, so a verification that was
started before a marker does not allow an append behind it. Guards are in memory only: an open transaction is
in the producer state, and needs no guard.
"""

from __future__ import annotations

from typing import Final

__all__ = ["NO_VERIFICATION", "VerificationGuard"]


class VerificationGuard:
    """One verification. It is compared by identity."""

    __slots__ = ("adds_partitions", "epoch", "lowest_sequence", "started_ms")

    def __init__(self, epoch: int, sequence: int, adds_partitions: bool, started_ms: int) -> None:
        self.epoch = epoch
        #: The lowest sequence that was to be verified. A batch with a higher one must not overtake it: after
        #: a verification that failed, the producer sends all of them again.
        self.lowest_sequence = sequence
        #: true if the produce request adds its partition to the transaction (`transaction.version` 2)
        self.adds_partitions = adds_partitions
        self.started_ms = started_ms

    def saw(self, epoch: int, sequence: int) -> None:
        """Another batch is to be verified under this guard."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


#: the guard of appends that are not verified, because `transaction.partition.verification.enable` is off
NO_VERIFICATION: Final = VerificationGuard(-1, -1, False, 0)
