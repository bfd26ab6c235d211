"""The timeline of metadata records, states of moments, and differences between two of them."""

from __future__ import annotations

from typing import Any

from penstock.console.views.metadata_log import MetadataLog, difference
from penstock.console.views.metadata_state import MetadataState
from penstock.records.record import Record, build_batch
from penstock.wire.control_records import LeaderChangeMessage, SnapshotHeaderRecord
from penstock.wire.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from penstock.wire.schema import Struct
from penstock.wire.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    QuotaEntity,
    RemoveAccessControlEntryRecord,
    UserScramCredentialRecord,
)
from tests.console.metadata_batches import batch

ID = b"t" * 16
TOPIC = TopicRecord(name="orders", topic_id=ID)
PARTITION = PartitionRecord(
    partition_id=0, topic_id=ID, replicas=[1, 2], isr=[1, 2], leader=1, leader_epoch=0
)


def log_of(*records: Struct, entries_max: int = 100) -> MetadataLog:
    log = MetadataLog(entries_max)
    for offset, record in enumerate(records):
        log.add(batch(offset, record), len(records))
    return log


def texts(log: MetadataLog, **query: Any) -> list[str]:
    wanted = {"text": "", "kind": "", "before": None, "limit": 100, **query}
    return [entry["text"] for entry in log.page(**wanted)["entries"]]


def test_a_line_describes_the_change_of_each_record() -> None:
    log = log_of(
        RegisterBrokerRecord(broker_id=1, fenced=True),
        BrokerRegistrationChangeRecord(broker_id=1, fenced=-1),
        TOPIC,
        PARTITION,
        PartitionChangeRecord(partition_id=0, topic_id=ID, leader=2, isr=[2]),
        NoOpRecord(),
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="1000"),
        RemoveTopicRecord(topic_id=ID),
    )
    assert texts(log)[::-1] == [
        "Broker 1 registered, fenced",
        "Broker 1: unfenced",
        "Topic orders was created",
        "orders-0: leader 1, replicas 1, 2",
        "orders-0: leader 2 (was 1), in sync 2 (was 1, 2)",
        "Config retention.ms of topic orders was set to 1000",
        "Topic orders was deleted",
    ]
    assert texts(log, kind="topic", text="DELETED") == ["Topic orders was deleted"]
    assert texts(log, before=2, limit=1) == ["Topic orders was created"]


def test_the_difference_between_two_moments() -> None:
    log = log_of(
        TOPIC,
        PARTITION,
        PartitionChangeRecord(partition_id=0, topic_id=ID, leader=2, isr=[2]),
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="1000"),
    )
    found = difference(log.state_at(1), log.state_at(3))
    assert found["total"] == 2
    partition, config = found["rows"]
    assert (partition["kind"], partition["name"], partition["change"]) == ("partition", "orders-0", "changed")
    assert {f["field"]: (f["before"], f["after"]) for f in partition["fields"]} == {
        "leader": ("1", "2"),
        "leader epoch": ("0", "1"),
        "in sync": ("1, 2", "2"),
    }
    assert (config["kind"], config["change"]) == ("topic config", "added")
    assert difference(log.state_at(3), log.state_at(3)) == {"rows": [], "total": 0}


def test_a_deleted_topic_takes_its_partitions_and_configs_with_it() -> None:
    log = log_of(
        TOPIC,
        PARTITION,
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="1"),
        RemoveTopicRecord(topic_id=ID),
    )
    assert log.state_at(3).items == {}
    assert {row["change"] for row in difference(log.state_at(2), log.state_at(3))["rows"]} == {"removed"}


def test_uncommitted_records_are_left_out() -> None:
    log = MetadataLog()
    log.add(batch(0, TOPIC) + batch(1, PARTITION), 1)
    assert (texts(log), log.position) == (["Topic orders was created"], 1)
    log.add(batch(0, TOPIC) + batch(1, PARTITION), 2)
    assert (len(texts(log)), log.position) == (2, 2)


def test_the_state_of_a_snapshot_is_where_the_log_begins() -> None:
    header = SnapshotHeaderRecord(last_contained_log_timestamp=77)
    log = MetadataLog()
    log.load_snapshot(batch(0, header, control=True) + batch(1, TOPIC, PARTITION), 50, 4)
    assert (log.start, log.position, log.last_epoch, log.start_time_ms) == (49, 50, 4, 77)
    log.add(batch(50, PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[1])), 51)
    assert texts(log) == ["orders-0: in sync 1 (was 1, 2)"]
    assert difference(log.state_at(49), log.state_at(50))["total"] == 1


def test_a_long_log_is_bounded_and_its_first_state_is_right() -> None:
    changes = [PartitionChangeRecord(partition_id=0, topic_id=ID, leader=1 + n % 2) for n in range(40)]
    log = log_of(TOPIC, PARTITION, *changes, entries_max=20)
    assert len(log.entries) <= 20
    first = log.state_at(log.start).items["partition", "orders-0"]
    assert int(first["leader epoch"]) == log.start - 1
    assert log.state_at(41).items["partition", "orders-0"]["leader epoch"] == "40"


def test_moments_are_found_by_time() -> None:
    log = log_of(TOPIC, PARTITION, NoOpRecord())
    assert [log.offset_at(t) for t in (-5, 0, 1500, 99_000)] == [0, 0, 1, 2]


def test_secrets_never_enter_a_state() -> None:
    scram = UserScramCredentialRecord(
        name="alice", mechanism=2, salt=b"SALT", stored_key=b"STORED", server_key=b"SERVER", iterations=8192
    )
    password = ConfigRecord(
        resource_type=4, resource_name="1", name="ssl.keystore.password", value="s3cret-pw"
    )
    of_link = [
        ConfigRecord(resource_type=102, resource_name="west", name=name, value=f"s3cret-{name}")
        for name in ("sasl.jaas.config", "ssl.keystore.key", "sasl.oauthbearer.assertion.claims")
    ]
    log = log_of(scram, password, scram, *of_link)
    shown = repr((log.state_at(5).items, log.page("", "", None, 10)))
    assert "ssl.keystore.key of link west" in shown
    for secret in ("SALT", "STORED", "SERVER", "s3cret-"):
        assert secret not in shown
    assert difference(log.state_at(1), log.state_at(2))["rows"][0]["fields"] == [
        {"field": "passwords set", "before": "1", "after": "2"}
    ]


def test_access_quotas_roles_and_leaders() -> None:
    acl = AccessControlEntryRecord(
        id=b"a" * 16,
        resource_type=2,
        resource_name="orders",
        pattern_type=3,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )
    entity = [QuotaEntity(entity_type="user", entity_name=None)]
    log = log_of(
        acl,
        ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=1024.0),
        ConfigRecord(resource_type=100, resource_name="ops", name="User:alice", value=""),
        RemoveAccessControlEntryRecord(id=b"a" * 16),
        ClientQuotaRecord(entity=entity, key="producer_byte_rate", remove=True),
    )
    assert texts(log)[::-1] == [
        "ACL was added: allow User:alice read on topic orders from *",
        "Quota producer_byte_rate of user <default> is 1024",
        "User:alice joined role ops",
        "ACL was removed: allow User:alice read on topic orders from *",
        "Quota producer_byte_rate of user <default> was removed",
    ]
    log.add(batch(5, LeaderChangeMessage(leader_id=2), control=True, epoch=9), 6)
    assert log.entries[-1].shown()["text"] == "Node 2 became the active controller"
    assert log.last_epoch == 9


def test_an_aborted_transaction_of_the_controller_changes_nothing() -> None:
    state = MetadataState()
    state.apply(TOPIC)
    state.apply(BeginTransactionRecord())
    state.apply(PARTITION)
    change = state.apply(AbortTransactionRecord(reason="no room"))
    assert change is not None and "no room" in change.text
    assert list(state.items) == [("topic", "orders")]


def test_a_record_of_an_unknown_type_is_counted() -> None:
    unknown = Record(0, 0, None, b"\x01\x63\x00")
    log = MetadataLog()
    log.add(build_batch([unknown], base_offset=0, leader_epoch=1), 1)
    assert (log.page("", "", None, 5)["unknown"], log.position) == (1, 1)
