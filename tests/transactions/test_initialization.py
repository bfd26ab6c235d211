"""InitProducerId with two-phase commit (KIP-939): no timeout, kept transactions, their epochs and records."""

from __future__ import annotations

import pytest

from penstock.transactions.metadata import LAST_EPOCH, NO_TIMEOUT_MS, TransactionMetadata
from penstock.transactions.records import decode_record, encode_key, encode_value
from tests.transactions.coordinator import Coordinator

_DAYS_S = 40 * 86_400


def metadata_of(coordinator: Coordinator) -> TransactionMetadata:
    """The last record of the log."""
    _, metadata = decode_record(*coordinator.log[-1])  # type: ignore[misc]
    assert metadata is not None
    return metadata


def prepared(epoch: int = 0) -> tuple[Coordinator, int]:
    """An open two-phase transaction, whose producer is gone."""
    coordinator = Coordinator()
    error, pid, *_ = coordinator.keep(keep=False)
    assert error == "NONE"
    if epoch:
        changed = metadata_of(coordinator)._replace(producer_epoch=epoch)
        coordinator = Coordinator(2, [(encode_key("x"), encode_value(changed, 2))])
        coordinator.next_id = 2000
    assert coordinator.add(pid, epoch) == "NONE"
    return coordinator, pid


class TestRefusals:
    def test_a_cluster_without_it_refuses_as_if_the_client_had_no_right(self) -> None:
        coordinator = Coordinator(two_phase_commit=False)
        assert coordinator.keep(keep=False)[0] == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
        assert coordinator.log == []

    def test_an_ordinary_transaction_is_kept_without_the_config(self) -> None:
        coordinator = Coordinator(two_phase_commit=False)
        _, pid, _ = coordinator.init()
        coordinator.add(pid, 0)
        assert coordinator.keep(two_phase=False) == ("NONE", pid, 1, pid, 0)

    @pytest.mark.parametrize("level", [0, 1])
    def test_a_transaction_is_kept_from_transaction_version_2_on(self, level: int) -> None:
        assert Coordinator(level).keep(two_phase=False)[0] == "UNSUPPORTED_VERSION"

    def test_an_earlier_producer_that_recovers_does_not_abort_a_prepared_transaction(self) -> None:
        coordinator, pid = prepared()
        coordinator.keep()
        assert coordinator.init(expected=(pid, 0))[0] == "PRODUCER_FENCED"
        assert coordinator.state() == "Ongoing"
        assert coordinator.init(expected=(pid, 1))[0] == "CONCURRENT_TRANSACTIONS"
        assert coordinator.state() == "PrepareAbort"


class TestTimeout:
    def test_a_two_phase_transaction_is_never_aborted_by_its_age(self) -> None:
        coordinator, pid = prepared()
        coordinator.advance(_DAYS_S)
        assert coordinator.state() == "Ongoing"
        other = coordinator.reloaded()
        other.advance(_DAYS_S)
        assert other.state() == "Ongoing"
        assert other.shard.describe("x").transaction_timeout_ms == NO_TIMEOUT_MS
        assert other.shard.overdue(other.now_ms) == 0
        assert len(other.shard.open_since()) == 1
        assert other.shard.two_phase(other.now_ms) == (1, 1)
        assert other.end(pid, 0, True) == ("NONE", pid, 1)

    def test_an_ordinary_transaction_loses_its_timeout_when_it_is_kept_for_two_phase_commit(self) -> None:
        coordinator = Coordinator()
        _, pid, _ = coordinator.init()
        coordinator.add(pid, 0, version=0)
        coordinator.advance(30)
        assert coordinator.keep() == ("NONE", pid, 1, pid, 0)
        coordinator.advance(_DAYS_S)
        assert coordinator.state() == "Ongoing"

    def test_two_phase_transactions_are_counted_apart(self) -> None:
        coordinator, _ = prepared()
        _, pid, _ = coordinator.init("ordinary")
        coordinator.add(pid, 0, name="ordinary")
        assert coordinator.shard.two_phase(coordinator.now_ms + 899_000) == (1, 0)
        assert coordinator.shard.two_phase(coordinator.now_ms + 901_000) == (1, 1)

    def test_a_kept_two_phase_transaction_does_not_get_a_timeout(self) -> None:
        coordinator, pid = prepared()
        assert coordinator.keep(two_phase=False) == ("NONE", pid, 1, pid, 0)
        coordinator.advance(_DAYS_S)
        assert coordinator.state() == "Ongoing"

    def test_an_ordinary_transaction_that_is_kept_has_the_timeout_from_its_begin_on(self) -> None:
        coordinator = Coordinator()
        _, pid, _ = coordinator.init()
        coordinator.add(pid, 0)
        coordinator.advance(50)
        assert coordinator.keep(two_phase=False)[0] == "NONE"
        coordinator.advance(20)
        assert coordinator.state() == "PrepareAbort"
        coordinator.write_markers()
        assert coordinator.init() == ("NONE", pid, 3)

    def test_an_ordinary_producer_with_the_same_id_gets_its_timeout(self) -> None:
        coordinator, pid = prepared()
        coordinator.end(pid, 0, True)
        coordinator.write_markers()
        assert coordinator.init() == ("NONE", pid, 2)
        assert coordinator.shard.describe("x").transaction_timeout_ms == 60_000

    def test_markers_of_a_decision_that_cannot_be_written_are_overdue(self) -> None:
        coordinator, pid = prepared()
        coordinator.advance(_DAYS_S)
        coordinator.end(pid, 0, True)
        assert coordinator.shard.overdue(coordinator.now_ms + 899_000) == 0
        assert coordinator.shard.overdue(coordinator.now_ms + 901_000) == 1


class TestKept:
    @pytest.mark.parametrize("committed", [True, False])
    def test_the_new_producer_decides_and_the_markers_have_the_id_of_the_transaction(
        self, committed: bool
    ) -> None:
        coordinator, pid = prepared()
        assert coordinator.keep() == ("NONE", pid, 1, pid, 0)
        assert coordinator.end(pid, 0, committed)[0] == "PRODUCER_FENCED"
        assert coordinator.end(pid, 1, committed) == ("NONE", pid, 2)
        assert coordinator.markers[0][1:4] == (pid, 1, committed)
        assert coordinator.end(pid, 1, committed)[0] == "CONCURRENT_TRANSACTIONS"
        coordinator.write_markers()
        assert coordinator.state() == ("CompleteCommit" if committed else "CompleteAbort")
        # the answer was lost
        assert coordinator.end(pid, 1, committed) == ("NONE", pid, 2)
        assert coordinator.end(pid, 0, committed)[0] == "PRODUCER_FENCED"
        assert coordinator.add(pid, 2) == "NONE"

    def test_each_new_producer_fences_the_one_before(self) -> None:
        coordinator, pid = prepared()
        assert coordinator.keep() == ("NONE", pid, 1, pid, 0)
        assert coordinator.keep() == ("NONE", pid, 2, pid, 0)
        assert coordinator.end(pid, 1, True)[0] == "PRODUCER_FENCED"
        assert coordinator.end(pid, 2, True) == ("NONE", pid, 3)
        assert coordinator.markers[0][1:4] == (pid, 1, True)

    def test_a_kept_transaction_can_be_ended_only(self) -> None:
        coordinator, pid = prepared()
        coordinator.keep()
        assert coordinator.add(pid, 0) == "PRODUCER_FENCED"
        assert coordinator.verify(pid, 0) == "PRODUCER_FENCED"
        assert coordinator.add(pid, 1) == "INVALID_TXN_STATE"

    def test_a_producer_without_an_open_transaction_gets_none(self) -> None:
        coordinator = Coordinator()
        error, pid, epoch, *ongoing = coordinator.keep()
        assert (error, epoch, ongoing) == ("NONE", 0, [-1, -1])
        assert coordinator.keep() == ("NONE", pid, 1, -1, -1)

    def test_a_decision_is_awaited(self) -> None:
        coordinator, pid = prepared()
        coordinator.end(pid, 0, True)
        assert coordinator.keep()[0] == "CONCURRENT_TRANSACTIONS"
        coordinator.write_markers()
        assert coordinator.keep() == ("NONE", pid, 2, -1, -1)

    def test_an_init_that_does_not_keep_aborts(self) -> None:
        coordinator, pid = prepared()
        coordinator.keep()
        assert coordinator.keep(keep=False)[0] == "CONCURRENT_TRANSACTIONS"
        assert coordinator.markers[0][1:4] == (pid, 1, False)
        coordinator.write_markers()
        assert coordinator.keep(keep=False) == ("NONE", pid, 3, -1, -1)
        assert coordinator.end(pid, 1, True)[0] == "PRODUCER_FENCED"

    def test_a_client_of_the_older_protocol_ends_with_the_new_pair(self) -> None:
        coordinator, pid = prepared()
        coordinator.keep()
        assert coordinator.end(pid, 0, True, version=0)[0] == "PRODUCER_FENCED"
        assert coordinator.end(pid, 1, True, version=0)[0] == "NONE"
        assert coordinator.markers[0][1:4] == (pid, 0, True)
        coordinator.write_markers()
        assert coordinator.add(pid, 1, version=0) == "NONE"


class TestExhaustedEpochs:
    def test_the_new_producer_gets_an_id_of_its_own(self) -> None:
        coordinator, pid = prepared(LAST_EPOCH)
        error, new_pid, epoch, *ongoing = coordinator.keep()
        assert (error, epoch, ongoing) == ("NONE", 0, [pid, LAST_EPOCH])
        assert new_pid != pid
        assert coordinator.end(pid, LAST_EPOCH, True)[0] == "INVALID_PRODUCER_ID_MAPPING"
        assert coordinator.add(pid, LAST_EPOCH) == "PRODUCER_FENCED"
        assert coordinator.end(new_pid, 0, True) == ("NONE", new_pid, 1)
        assert coordinator.markers[0][1:4] == (pid, LAST_EPOCH + 1, True)
        coordinator.write_markers()
        assert coordinator.end(new_pid, 0, True) == ("NONE", new_pid, 1)
        assert coordinator.end(pid, LAST_EPOCH, True)[0] == "INVALID_PRODUCER_ID_MAPPING"

    def test_the_end_with_the_last_epoch_changes_the_id_and_is_repeated(self) -> None:
        coordinator, pid = prepared(LAST_EPOCH - 1)
        assert coordinator.keep() == ("NONE", pid, LAST_EPOCH, pid, LAST_EPOCH - 1)
        error, new_pid, epoch = coordinator.end(pid, LAST_EPOCH, True)
        assert (error, epoch) == ("NONE", 0)
        assert new_pid != pid
        coordinator = coordinator.reloaded()
        coordinator.write_markers()
        assert coordinator.end(pid, LAST_EPOCH, True) == ("NONE", new_pid, 0)
        assert coordinator.end(pid, LAST_EPOCH - 1, True)[0] == "INVALID_PRODUCER_ID_MAPPING"
        assert coordinator.add(new_pid, 0) == "NONE"

    def test_an_abort_by_the_coordinator_fences_the_new_id(self) -> None:
        coordinator, pid = prepared(LAST_EPOCH)
        _, new_pid, *_ = coordinator.keep()
        assert coordinator.init()[0] == "CONCURRENT_TRANSACTIONS"
        assert coordinator.markers[0][1:4] == (pid, LAST_EPOCH + 1, False)
        coordinator.write_markers()
        assert coordinator.init() == ("NONE", new_pid, 2)


class TestRecords:
    def test_both_pairs_survive_a_load_in_each_state(self) -> None:
        coordinator, pid = prepared(LAST_EPOCH)
        _, new_pid, *_ = coordinator.keep()
        coordinator = coordinator.reloaded()
        assert metadata_of(coordinator).client_pair == (new_pid, 0)
        assert coordinator.end(new_pid, 0, True) == ("NONE", new_pid, 1)
        coordinator = coordinator.reloaded()
        assert coordinator.markers[0][1:4] == (pid, LAST_EPOCH + 1, True)
        coordinator.write_markers()
        coordinator = coordinator.reloaded()
        assert coordinator.end(new_pid, 0, True) == ("NONE", new_pid, 1)

    def test_the_tags_are_those_of_kafka(self) -> None:
        """TransactionLogValue, version 1: tags 0 previous id, 1 next id, 2 client version, 3 next epoch."""
        coordinator, pid = prepared()
        coordinator.keep()
        _, value = coordinator.log[-1]
        assert value is not None
        eight = pid.to_bytes(8, "big")
        tags = b"\4" + b"\0\x08" + eight + b"\1\x08" + eight + b"\2\2\0\2" + b"\3\2\0\1"
        assert value.endswith(tags)
        assert b"\x7f\xff\xff\xff" in value, "the timeout"
