"""Decisions of the transaction coordinator: both protocols, fencing, timeouts (KIP-98, 360, 890)."""

from __future__ import annotations

from typing import ClassVar

import pytest

from penstock.model.errors import ErrorCode
from penstock.transactions.initialization import Initialization
from penstock.transactions.metadata import LAST_EPOCH
from penstock.transactions.records import decode_record, encode_key, encode_value
from penstock.transactions.shard import TransactionFilter
from penstock.wire.slicing import exhausted
from tests.transactions.coordinator import TP, Coordinator


def started(level: int = 2) -> tuple[Coordinator, int]:
    coordinator = Coordinator(level)
    error, producer_id, epoch = coordinator.init()
    assert (error, epoch) == ("NONE", 0)
    return coordinator, producer_id


def at_epoch(epoch: int, state: str = "Empty") -> tuple[Coordinator, int]:
    """A coordinator whose transactional id has that epoch, as a log of Kafka may have it."""
    coordinator, producer_id = started()
    _, metadata = decode_record(*coordinator.log[-1])  # type: ignore[misc]
    assert metadata is not None
    changed = metadata._replace(producer_epoch=epoch)
    log: list[tuple[bytes, bytes | None]] = [(encode_key("x"), encode_value(changed, 2))]
    other = Coordinator(2, log)
    other.next_id = 2000
    return other, producer_id


class TestEpochs:
    def test_version_1_keeps_the_epoch(self) -> None:
        coordinator, pid = started()
        assert coordinator.add(pid, 0, version=0) == "NONE"
        assert coordinator.end(pid, 0, True, version=0) == ("NONE", -1, -1)
        assert coordinator.markers[0][1:4] == (pid, 0, True)
        coordinator.write_markers()
        assert coordinator.state() == "CompleteCommit"
        assert coordinator.add(pid, 0, version=0) == "NONE"

    def test_version_2_raises_it_with_each_end(self) -> None:
        coordinator, pid = started()
        assert coordinator.add(pid, 0) == "NONE"
        assert coordinator.end(pid, 0, True) == ("NONE", pid, 1)
        assert coordinator.markers[0].producer_epoch == 1
        assert coordinator.markers[0].transaction_version == 2
        coordinator.write_markers()
        assert coordinator.add(pid, 0) == "PRODUCER_FENCED"
        assert coordinator.add(pid, 1) == "NONE"

    def test_an_exhausted_epoch_changes_the_producer_id_at_the_end(self) -> None:
        coordinator, pid = at_epoch(LAST_EPOCH)
        assert coordinator.add(pid, LAST_EPOCH) == "NONE"
        error, new_pid, epoch = coordinator.end(pid, LAST_EPOCH, True)
        assert (error, epoch) == ("NONE", 0)
        assert new_pid != pid
        # The markers end the transaction of the old id. The client may use the new id already: it waits.
        assert coordinator.markers[0].producer_id == pid
        assert coordinator.markers[0].producer_epoch == LAST_EPOCH + 1
        assert coordinator.add(new_pid, 0) is None
        coordinator.write_markers()
        assert [reply.error_code for reply in coordinator.replies] == [0]  # type: ignore[attr-defined]
        assert coordinator.state() == "Ongoing"

    def test_a_lost_response_of_an_overflow_is_repeated(self) -> None:
        coordinator, pid = at_epoch(LAST_EPOCH)
        coordinator.add(pid, LAST_EPOCH)
        answer = coordinator.end(pid, LAST_EPOCH, False)
        assert coordinator.end(pid, LAST_EPOCH, False)[0] == "CONCURRENT_TRANSACTIONS"
        coordinator.write_markers()
        assert coordinator.end(pid, LAST_EPOCH, False) == answer

    def test_requests_of_the_id_before_an_overflow(self) -> None:
        """Only the last epoch is a retry (`TransactionCoordinator.endTransaction`, retryOnOverflow)."""
        coordinator, pid = at_epoch(LAST_EPOCH)
        coordinator.add(pid, LAST_EPOCH)
        coordinator.end(pid, LAST_EPOCH, True)
        coordinator.write_markers()
        assert coordinator.end(pid, -1, True)[0] == "INVALID_PRODUCER_ID_MAPPING"
        coordinator, pid = at_epoch(LAST_EPOCH)
        coordinator.init()
        assert coordinator.end(pid, LAST_EPOCH, True)[0] == "PRODUCER_FENCED"

    def test_init_rotates_an_exhausted_id(self) -> None:
        coordinator, pid = at_epoch(LAST_EPOCH)
        error, new_pid, epoch = coordinator.init(expected=(pid, LAST_EPOCH))
        assert (error, epoch) == ("NONE", 0)
        assert new_pid != pid


class TestInit:
    def test_each_init_fences_the_producer_before(self) -> None:
        coordinator, pid = started()
        assert coordinator.init() == ("NONE", pid, 1)
        assert coordinator.add(pid, 0) == "PRODUCER_FENCED"

    def test_the_same_expected_epoch_again_is_a_retry(self) -> None:
        coordinator, pid = started()
        assert coordinator.init(expected=(pid, 0)) == ("NONE", pid, 1)
        assert coordinator.init(expected=(pid, 0)) == ("NONE", pid, 1)
        assert coordinator.init(expected=(pid, 1)) == ("NONE", pid, 2)
        assert coordinator.init(expected=(pid, 0))[0] == "PRODUCER_FENCED"
        assert coordinator.init(expected=(7, 2))[0] == "PRODUCER_FENCED"

    def test_an_unknown_id_with_an_expected_epoch_is_new(self) -> None:
        assert Coordinator().init(expected=(7, 3))[0::2] == ("NONE", 0)

    @pytest.mark.parametrize("level", [1, 2])
    def test_an_open_transaction_is_aborted_first(self, level: int) -> None:
        coordinator, pid = started(level)
        coordinator.add(pid, 0, version=2 if level == 2 else 0)
        assert coordinator.init()[0] == "CONCURRENT_TRANSACTIONS"
        assert coordinator.markers[0][2:4] == (1, False)
        assert coordinator.init()[0] == "CONCURRENT_TRANSACTIONS"
        coordinator.write_markers()
        assert coordinator.init() == ("NONE", pid, 2)

    def test_timeouts_have_a_maximum(self) -> None:
        coordinator = Coordinator()
        for timeout_ms in (0, -1, 900_001):
            with pytest.raises(Exception, match="INVALID_TRANSACTION_TIMEOUT"):
                coordinator.shard.init_producer_id("x", Initialization(timeout_ms))


class TestEnd:
    #: state: answers to (abort retried, abort, commit retried, commit) with version 2
    V2: ClassVar = {
        "Empty": ("PRODUCER_FENCED", "NONE", "PRODUCER_FENCED", "INVALID_TXN_STATE"),
        "CompleteAbort": ("NONE", "NONE", "INVALID_TXN_STATE", "INVALID_TXN_STATE"),
        "CompleteCommit": ("INVALID_TXN_STATE", "NONE", "NONE", "INVALID_TXN_STATE"),
    }
    V1: ClassVar = {
        "Empty": ("INVALID_TXN_STATE", "INVALID_TXN_STATE"),
        "CompleteAbort": ("NONE", "INVALID_TXN_STATE"),
        "CompleteCommit": ("INVALID_TXN_STATE", "NONE"),
    }

    @staticmethod
    def in_state(state: str, version: int) -> tuple[Coordinator, int, int]:
        coordinator, pid = started()
        epoch = 0
        if state == "Empty":
            assert coordinator.init()[2] == (epoch := 1)
        else:
            coordinator.add(pid, 0, version)
            coordinator.end(pid, 0, state == "CompleteCommit", version)
            coordinator.write_markers()
            epoch = 1 if version == 2 else 0
        assert coordinator.state() == state
        return coordinator, pid, epoch

    @pytest.mark.parametrize("state", V2)
    def test_version_2(self, state: str) -> None:
        cases = ((False, -1), (False, 0), (True, -1), (True, 0))
        for (committed, behind), expected in zip(cases, self.V2[state], strict=True):
            coordinator, pid, epoch = self.in_state(state, 2)
            error, _, new_epoch = coordinator.end(pid, epoch + behind, committed)
            assert error == expected, (committed, behind)
            if error == "NONE":
                assert new_epoch == (epoch if behind else epoch + 1)

    @pytest.mark.parametrize("state", V1)
    def test_version_1(self, state: str) -> None:
        for committed, expected in zip((False, True), self.V1[state], strict=True):
            coordinator, pid, epoch = self.in_state(state, 0)
            assert coordinator.end(pid, epoch, committed, version=0)[0] == expected
            assert coordinator.end(pid, epoch - 1, committed, version=0)[0] == "PRODUCER_FENCED"

    def test_a_delayed_end_does_not_hit_a_later_transaction(self) -> None:
        """KAFKA-17754."""
        coordinator, pid = started()
        coordinator.add(pid, 0)
        coordinator.end(pid, 0, True)
        coordinator.write_markers()
        coordinator.add(pid, 1)
        assert coordinator.end(pid, 0, True)[0] == "PRODUCER_FENCED"
        assert coordinator.state() == "Ongoing"

    @pytest.mark.parametrize("version", [0, 2])
    def test_wrong_producers(self, version: int) -> None:
        coordinator, pid = started()
        assert coordinator.end(pid, 0, True, version, name="y")[0] == "INVALID_PRODUCER_ID_MAPPING"
        assert coordinator.end(pid, 0, True, version, name="")[0] == "INVALID_REQUEST"
        assert coordinator.end(pid + 1, 0, True, version)[0] == "INVALID_PRODUCER_ID_MAPPING"
        assert coordinator.end(pid, 5, True, version)[0] == "PRODUCER_FENCED"

    def test_while_markers_are_written_all_requests_wait_or_retry(self) -> None:
        coordinator, pid = started()
        coordinator.add(pid, 0)
        coordinator.end(pid, 0, True)
        for epoch in (0, 1):
            for committed in (False, True):
                assert coordinator.end(pid, epoch, committed)[0] == "CONCURRENT_TRANSACTIONS"
        assert coordinator.add(pid, 1) is None
        coordinator.advance(0.1)
        assert [r.error_code for r in coordinator.replies] == [ErrorCode.CONCURRENT_TRANSACTIONS]  # type: ignore[attr-defined]
        assert coordinator.verify(pid, 1) == "CONCURRENT_TRANSACTIONS"


class TestSize:
    def test_a_transaction_that_the_log_would_refuse_is_refused(self) -> None:
        """With Kafka's code, and before the append, whose failure would end the shard."""
        coordinator, pid = started()
        coordinator.record_bytes_max = 20_000
        few = frozenset(("t" * 249, index) for index in range(2))
        many = frozenset((f"{index:0>249}", 0) for index in range(100))
        assert coordinator.add(pid, 0, partitions=few) == "NONE"
        written = len(coordinator.log)
        assert coordinator.add(pid, 0, partitions=many) == "UNKNOWN_SERVER_ERROR"
        assert len(coordinator.log) == written
        assert coordinator.end(pid, 0, True)[0] == "NONE"
        assert coordinator.markers[0].partitions == few

    def test_partitions_of_one_topic_share_its_name(self) -> None:
        coordinator, pid = started()
        coordinator.record_bytes_max = 20_000
        partitions = frozenset(("t" * 249, index) for index in range(4_000))
        assert coordinator.add(pid, 0, partitions=partitions) == "NONE"
        assert len(coordinator.log[-1][1] or b"") < coordinator.record_bytes_max


class TestVerification:
    def test_a_partition_of_the_transaction(self) -> None:
        coordinator, pid = started()
        assert coordinator.verify(pid, 0) == "TRANSACTION_ABORTABLE"
        coordinator.add(pid, 0, version=0)
        assert coordinator.verify(pid, 0) == "NONE"
        assert coordinator.verify(pid, 1) == "PRODUCER_FENCED"
        assert coordinator.verify(pid + 1, 0) == "INVALID_PRODUCER_ID_MAPPING"
        assert coordinator.verify(pid, 0, name="y") == "INVALID_PRODUCER_ID_MAPPING"


class TestLog:
    def test_a_new_coordinator_resends_the_markers(self) -> None:
        coordinator, pid = started()
        coordinator.add(pid, 0)
        coordinator.end(pid, 0, True)
        other = coordinator.reloaded()
        assert other.markers == coordinator.markers
        other.write_markers()
        assert other.state() == "CompleteCommit"

    @pytest.mark.parametrize("trusted", [True, False])
    def test_a_clock_that_is_ahead_aborts_no_transaction_after_a_load(self, trusted: bool) -> None:
        """A coordinator loads the log while its clock is two days ahead."""
        coordinator, pid = started()
        coordinator.add(pid, 0)
        two_days = 2 * 86_400_000
        ahead = Coordinator(
            2, list(coordinator.log), now_ms=coordinator.now_ms + two_days, is_clock_trusted=trusted
        )
        ahead.advance(59)
        assert ahead.state() == ("PrepareAbort" if trusted else "Ongoing")
        ahead.advance(61)
        assert ahead.state() == "PrepareAbort"

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_records_round_trip(self, version: int) -> None:
        coordinator = Coordinator(version)
        _, pid, _ = coordinator.init()
        coordinator.add(pid, 0, version=2 if version == 2 else 0)
        for key, value in coordinator.log:
            assert value is not None
            assert value[:2] == (b"\0\1" if version else b"\0\0")
            name, metadata = decode_record(key, value) or ("", None)
            assert metadata is not None
            assert name == "x"
            assert encode_value(metadata, version) == value

    def test_bytes_are_those_of_kafka(self) -> None:
        """By the schemas of Kafka's TransactionLogKey and TransactionLogValue, version 0."""
        coordinator = Coordinator(0)
        coordinator.next_id = 6
        coordinator.init("id")
        key, value = coordinator.log[0]
        assert key == b"\0\0\0\2id"
        timeout, now = (60_000).to_bytes(4, "big"), (1_000_000).to_bytes(8, "big")
        assert (
            value == b"\0\0" + b"\0" * 7 + b"\7" + b"\0\0" + timeout + b"\0" + b"\xff" * 4 + now + b"\xff" * 8
        )

    def test_unknown_records_are_skipped(self) -> None:
        assert decode_record(b"\0\5abc", b"\0\0") is None
        assert decode_record(encode_key("x"), b"\0\x09") is None


class TestTime:
    def test_a_transaction_that_takes_too_long_is_aborted(self) -> None:
        coordinator, pid = started()
        coordinator.add(pid, 0)
        coordinator.advance(59)
        assert coordinator.state() == "Ongoing"
        coordinator.advance(11)
        assert coordinator.state() == "PrepareAbort"
        coordinator.write_markers()
        assert coordinator.end(pid, 0, True)[0] == "INVALID_TXN_STATE"
        assert coordinator.init() == ("NONE", pid, 2)

    def test_transactions_whose_timeout_has_passed_are_counted_until_they_are_complete(self) -> None:
        coordinator, pid = started()
        coordinator.add(pid, 0)
        assert coordinator.shard.overdue(coordinator.now_ms) == 0
        coordinator.advance(59)
        assert coordinator.shard.overdue(coordinator.now_ms) == 0
        coordinator.advance(11)
        assert coordinator.state() == "PrepareAbort"
        assert coordinator.shard.overdue(coordinator.now_ms) == 1, "a partition has no marker"
        coordinator.write_markers()
        assert coordinator.shard.overdue(coordinator.now_ms) == 0

    def test_a_commit_that_is_late_counts_from_its_timeout_on(self) -> None:
        coordinator, pid = started()
        coordinator.add(pid, 0)
        coordinator.end(pid, 0, True)
        assert coordinator.shard.overdue(coordinator.now_ms + 59_000) == 0
        assert coordinator.shard.overdue(coordinator.now_ms + 61_000) == 1

    def test_the_deadline_survives_a_load(self) -> None:
        coordinator, pid = started()
        coordinator.add(pid, 0)
        coordinator.now_ms += 50_000
        other = Coordinator(2, list(coordinator.log))
        other.now_ms = coordinator.now_ms
        other.advance(61)
        assert other.state() == "PrepareAbort"

    def test_many_transactions_are_aborted_some_at_a_time(self) -> None:
        """1,000 of a shard that were due at once took 24 ms, and all shards are checked at the same time."""
        coordinator = Coordinator(2)
        names = [f"id-{number}" for number in range(90)]
        for name in names:
            coordinator.init(name)
            coordinator.add(coordinator.next_id, 0, name=name)
        coordinator.advance(59)
        coordinator.now_ms += 11_000
        aborted = 0
        for _ in range(5):
            before = aborted
            coordinator.advance(0.01)
            aborted = [coordinator.state(name) for name in names].count("PrepareAbort")
            assert aborted - before <= 20
        assert aborted == len(names)

    def test_many_unused_ids_expire_some_at_a_time(self) -> None:
        coordinator = Coordinator(2)
        for number in range(450):
            coordinator.init(f"id-{number}")
        coordinator.now_ms += 8 * 86400 * 1000
        for left in (350, 250, 150, 50, 0):
            coordinator.advance(0.01)
            assert len(coordinator.shard._ledger.by_id) == left

    def test_unused_ids_expire_but_open_transactions_do_not(self) -> None:
        coordinator, pid = started()
        coordinator.init("open")
        coordinator.add(coordinator.next_id, 0, name="open")
        coordinator.shard._ledger.deadlines_ms.clear()
        coordinator.advance(8 * 86400)
        assert coordinator.state("open") == "Ongoing"
        assert coordinator.shard.describe("x").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert coordinator.log[-1] == (encode_key("x"), None)
        assert coordinator.add(pid, 0) == "INVALID_PRODUCER_ID_MAPPING"


class TestListing:
    def test_filters(self) -> None:
        coordinator, pid = started()
        coordinator.init("other")
        coordinator.add(pid, 0)

        def names(**filters: object) -> list[str]:
            wanted = TransactionFilter((), (), -1)._replace(**filters)  # type: ignore[arg-type]
            return sorted(found.transactional_id for found in exhausted(coordinator.shard.listing(wanted)))

        assert names() == ["other", "x"]
        assert names(producer_ids={pid}) == ["x"]
        assert names(states={coordinator.shard._ledger.by_id["x"].state}) == ["x"]
        coordinator.advance(5)
        assert names(duration_ms=4000, producer_ids={pid}) == ["x"]
        assert names(duration_ms=5000, producer_ids={pid}) == []

    def test_a_description_has_the_partitions_without_markers(self) -> None:
        coordinator, pid = started()
        coordinator.add(pid, 0)
        coordinator.end(pid, 0, True)
        found = coordinator.shard.describe("x")
        assert (found.transaction_state, found.producer_epoch) == ("PrepareCommit", 1)
        assert [(topic.topic, topic.partitions) for topic in found.topics] == [("t", [0])]
        assert {("t", 0)} == TP
