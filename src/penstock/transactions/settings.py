"""The configs of transactions, and the input that all shards of a broker share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.model.config import BrokerConfig
from penstock.model.config.settings import BROKER_CONFIG, read

__all__ = ["Environment", "TransactionSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Values of the configs in docs/configuration.md. Names end in their unit."""

    timeout_ms_max: int = BROKER_CONFIG.integer("transaction.max.timeout.ms")
    two_phase_commit: bool = BROKER_CONFIG.flag("transaction.two.phase.commit.enable")
    id_expiration_ms: int = BROKER_CONFIG.integer("transactional.id.expiration.ms")
    abort_check_ms: int = BROKER_CONFIG.integer("transaction.abort.timed.out.transaction.cleanup.interval.ms")
    expiry_check_ms: int = BROKER_CONFIG.integer("transaction.remove.expired.transaction.cleanup.interval.ms")

    @classmethod
    def of(cls, config: BrokerConfig) -> TransactionSettings:
        return read(cls, config)


class Environment:
    """Settings, the cluster's transaction.version, and a source of producer ids."""

    __slots__ = ("level", "may_expire", "record_bytes_max", "settings", "take_producer_id")

    def __init__(
        self,
        settings: TransactionSettings,
        level: Callable[[], int],
        take_producer_id: Callable[[], int | None],
        may_expire: Callable[[], bool],
        record_bytes_max: Callable[[], int],
    ) -> None:
        """`take_producer_id` returns None while the controller has not allocated a block of ids.

        `may_expire` returns true while the wall clock is trusted. Transactional ids expire only then.
        `record_bytes_max` returns `max.message.bytes` of `__transaction_state`.
        """
        self.settings = settings
        #: the finalized level of transaction.version
        self.level = level
        self.take_producer_id = take_producer_id
        self.may_expire = may_expire
        self.record_bytes_max = record_bytes_max
