"""A transaction shard without a broker: requests as methods, markers on demand."""

from __future__ import annotations

from penstock.coordination.outbox import bytes_of
from penstock.model.errors import ApiError, ErrorCode
from penstock.transactions.initialization import Initialization
from penstock.transactions.ledger import SendMarkers
from penstock.transactions.metadata import TopicPartition
from penstock.transactions.settings import Environment, TransactionSettings
from penstock.transactions.shard import Addition, TransactionShard
from penstock.wire.apis.end_txn import EndTxnResponse
from penstock.wire.schema import Struct

TP = frozenset({("t", 0)})


class Coordinator:
    """Answers are (error name, producer id, epoch); the log is what the shard has written."""

    def __init__(
        self,
        level: int = 2,
        log: list[tuple[bytes, bytes | None]] | None = None,
        *,
        now_ms: int = 1_000_000,
        is_clock_trusted: bool = True,
        two_phase_commit: bool = True,
    ) -> None:
        self.level = level
        self.next_id = 1000
        self.log = log or []
        self.now_ms = now_ms
        self.record_bytes_max = 1_048_588
        env = Environment(
            TransactionSettings(two_phase_commit=two_phase_commit),
            lambda: self.level,
            self._take,
            lambda: is_clock_trusted,
            record_bytes_max=lambda: self.record_bytes_max,
        )
        self.shard = TransactionShard(env)
        for offset, (key, value) in enumerate(self.log):
            self.shard.replay(offset, -1, -1, key, value)
        self.markers: list[SendMarkers] = []
        self.replies: list[Struct] = []
        self._turn()
        self.shard.on_loaded()
        self.collect()

    def _take(self) -> int | None:
        self.next_id += 1
        return self.next_id

    def _turn(self) -> None:
        self.shard.begin(self.now_ms, self.now_ms)

    def collect(self) -> None:
        outbox = self.shard.outbox
        self.log += map(bytes_of, outbox.records)
        self.markers += outbox.effects
        self.replies += [reply if isinstance(reply, Struct) else reply() for _, reply in outbox.replies]
        outbox.clear()

    def init(self, name: str = "x", expected: tuple[int, int] | None = None) -> tuple[str, int, int]:
        return self._init(name, Initialization(60_000, expected))[:3]

    def keep(
        self,
        name: str = "x",
        *,
        two_phase: bool = True,
        keep: bool = True,
        expected: tuple[int, int] | None = None,
    ) -> tuple[str, int, int, int, int]:
        """As `init`, with the producer id and the epoch of the transaction that was kept."""
        return self._init(name, Initialization(60_000, expected, two_phase, keep))

    def _init(self, name: str, wanted: Initialization) -> tuple[str, int, int, int, int]:
        self._turn()
        try:
            response = self.shard.init_producer_id(name, wanted)
        except ApiError as e:
            return (e.code.name, -1, -1, -1, -1)
        finally:
            self.collect()
        return (
            ErrorCode(response.error_code).name,
            response.producer_id,
            response.producer_epoch,
            response.ongoing_txn_producer_id,
            response.ongoing_txn_producer_epoch,
        )

    def add(
        self,
        producer_id: int,
        epoch: int,
        version: int = 2,
        name: str = "x",
        partitions: frozenset[TopicPartition] = TP,
    ) -> str | None:
        self._turn()
        addition = Addition(name, producer_id, epoch, partitions, version)

        def respond(code: ErrorCode) -> Struct:
            return EndTxnResponse(error_code=code)

        response = self.shard.add_partitions(addition, respond, "r")
        self.collect()
        return None if response is None else ErrorCode(response.error_code).name  # type: ignore[attr-defined]

    def verify(self, producer_id: int, epoch: int, name: str = "x") -> str:
        self._turn()
        return self.shard.verify_partitions(Addition(name, producer_id, epoch, TP, 2))["t", 0].name

    def end(
        self, producer_id: int, epoch: int, committed: bool, version: int = 2, name: str = "x"
    ) -> tuple[str, int, int]:
        self._turn()
        try:
            response = self.shard.end_transaction(name, producer_id, epoch, committed, version)
        except ApiError as e:
            return (e.code.name, -1, -1)
        finally:
            self.collect()
        return (ErrorCode(response.error_code).name, response.producer_id, response.producer_epoch)

    def write_markers(self) -> None:
        self._turn()
        markers, self.markers = self.markers, []
        for sent in markers:
            self.shard.markers_written(
                sent.transactional_id, sent.producer_id, sent.producer_epoch, sent.partitions
            )
        self.collect()

    def advance(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)
        self._turn()
        while (key := self.shard.timers.pop_expired()) is not None:
            self.shard.timer_expired(key)
        self.collect()

    def state(self, name: str = "x") -> str:
        return self.shard.describe(name).transaction_state

    def reloaded(self) -> Coordinator:
        """Another coordinator that has loaded the same log."""
        other = Coordinator(self.level, list(self.log))
        other.now_ms, other.next_id = self.now_ms, self.next_id + 500
        return other
