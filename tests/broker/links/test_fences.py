"""`penstock link promote --fence`: the source refuses records, and one copy takes them at any time."""

from __future__ import annotations

import json
import threading

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.broker.links.source_cluster import SourceCluster
from penstock.model.config.mirrored_topics import MirroredTopic
from penstock.model.errors import PolicyViolation
from penstock.net.link_client import set_links
from penstock.testing import broker
from tests.broker.links.clusters import (
    DEFAULTS,
    commit,
    committed,
    create,
    ends_at,
    lines,
    link,
    log_of,
    reports,
    send,
    values,
)
from tests.broker.links.commands import topic_links
from tests.cli.running import run_here
from tests.waiting import eventually


def test_a_promotion_with_a_fence_leaves_one_writable_copy(capsys: pytest.CaptureFixture[str]) -> None:
    with broker(config=DEFAULTS) as source, broker(config=DEFAULTS) as destination:
        old, new = source.bootstrap, destination.bootstrap
        create(old, "orders", 2)
        send(old, "orders", range(10))
        link(new, old)
        ends_at(new, "orders", 10)
        assert run_here("link", "promote", "west", "--all", "--fence", "--bootstrap", new) == 0
        assert "nothing is missing" in capsys.readouterr().out
        failed: list[str] = []
        producer = Producer({"bootstrap.servers": old, "message.timeout.ms": 60_000})
        producer.produce("orders", b"x", on_delivery=lambda error, _: failed.append(error.name()))
        producer.flush(30)
        assert failed == ["POLICY_VIOLATION"]
        send(new, "orders", range(10, 20))
        # The fenced source has nothing of its own, and returns without a record in the quarantine. What the
        # link reported before the failback is not held against the promotion, a second before the next round.
        link(old, new, "east", interval_ms="1500")
        eventually(lambda: "topic orders is mirrored by link west" in reports(old))
        assert run_here("link", "failback", "east", "orders", "--json", "--bootstrap", old) == 0
        rows = json.loads(capsys.readouterr().out)
        assert [(row["common_offset"], row["set_aside_records"]) for row in rows] == [(10, 0), (0, 0)]
        ends_at(old, "orders", 20)
        assert run_here("link", "promote", "east", "--all", "--fence", "--bootstrap", old) == 0
        send(old, "orders", range(20, 30))
        assert values(old, "orders") == list(range(30))


def test_a_source_that_cannot_be_fenced_is_mirrored_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Apache Kafka, which has no such config."""

    async def refuse(*_: object) -> bool:
        raise PolicyViolation("the source cannot be fenced: INVALID_CONFIG, unknown")

    monkeypatch.setattr(SourceCluster, "set_state", refuse)
    with broker(config=DEFAULTS) as source, broker(config=DEFAULTS) as destination:
        old, new = source.bootstrap, destination.bootstrap
        create(old, "orders")
        send(old, "orders", range(10))
        link(new, old)
        ends_at(new, "orders", 10)
        assert run_here("link", "promote", "west", "--all", "--fence", "--bootstrap", new) != 0
        assert "topic orders: the source cannot be fenced: INVALID_CONFIG" in capsys.readouterr().err
        send(old, "orders", range(10, 20))
        ends_at(new, "orders", 20)


def test_a_fence_of_a_promotion_that_is_given_up_is_lifted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker of the source does not show the fence in time; the next promotion succeeds."""
    change = SourceCluster.set_state

    async def half(source: SourceCluster, topic: str, name: str, value: str) -> bool:
        await change(source, topic, name, value)
        return False

    with broker(config=DEFAULTS) as source, broker(config=DEFAULTS) as destination:
        old, new = source.bootstrap, destination.bootstrap
        create(old, "orders")
        send(old, "orders", range(10))
        link(new, old)
        ends_at(new, "orders", 10)
        with monkeypatch.context() as patch:
            patch.setattr(SourceCluster, "set_state", half)
            assert run_here("link", "promote", "west", "--all", "--fence", "--wait", "1", "--bootstrap", new)
            assert "the source of topic orders does not respond" in capsys.readouterr().err
        eventually(lambda: state_at(old) == "lifted")
        send(old, "orders", range(10, 20))
        ends_at(new, "orders", 20)
        assert run_here("link", "promote", "west", "--all", "--fence", "--bootstrap", new) == 0
        assert state_at(old) == "fenced"
        # The topic returns to the source that it has fenced: that one has the writable copy again.
        assert run_here("link", "failback", "west", "orders", "--bootstrap", new) == 0
        eventually(lambda: state_at(old) == "lifted")
        send(old, "orders", range(20, 30))
        ends_at(new, "orders", 30)


def test_a_promotion_without_a_fence_lifts_a_late_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker has asked for the fence of a promotion that was given up, and the request comes at the end."""
    late: list[str] = []

    async def keep(source: SourceCluster, topic: str, name: str, value: str) -> bool:
        late.append(value)
        return False

    with broker(config=DEFAULTS) as source, broker(config=DEFAULTS) as destination:
        old, new = source.bootstrap, destination.bootstrap
        create(old, "orders")
        send(old, "orders", range(10))
        link(new, old)
        ends_at(new, "orders", 10)
        with monkeypatch.context() as patch:
            patch.setattr(SourceCluster, "set_state", keep)
            assert run_here("link", "promote", "west", "--all", "--fence", "--wait", "1", "--bootstrap", new)
        capsys.readouterr()
        assert run_here("link", "promote", "west", "--all", "--bootstrap", new) == 0
        with lines(old) as line:
            line.run(lambda cluster: set_links(cluster, {"orders": late[0]}))
        eventually(lambda: state_at(old) == "lifted")
        send(old, "orders", range(10, 20))


def state_at(source: str) -> str:
    with lines(source) as line:
        text = topic_links(line, ["orders"])["orders"]
    return str(MirroredTopic.parse(text).state) if text else ""


def test_a_promotion_waits_for_transactions_that_are_open_at_the_source() -> None:
    """Also for the offsets that they commit. They may commit behind the fence."""
    with broker(config=DEFAULTS) as source, broker(config=DEFAULTS) as destination:
        old, new = source.bootstrap, destination.bootstrap
        create(old, "orders")
        send(old, "orders", range(4))
        commit(old, "readers", "orders", 1)
        link(new, old, groups="*")
        writer = Producer({"bootstrap.servers": old, "transactional.id": "w"})
        writer.init_transactions(30)
        writer.begin_transaction()
        writer.produce("orders", b"4", partition=0)
        reader = Consumer({"bootstrap.servers": old, "group.id": "readers"})
        place = [TopicPartition("orders", 0, 3)]
        writer.send_offsets_to_transaction(place, reader.consumer_group_metadata(), 30)
        writer.flush(30)
        ends_at(new, "orders", 5)
        promoted: list[int] = []
        args = ("link", "promote", "west", "--all", "--fence", "--bootstrap", new)
        promotion = threading.Thread(target=lambda: promoted.append(run_here(*args)))
        promotion.start()
        eventually(lambda: reason(new) == "1 transactions are open at the source")
        assert promotion.is_alive()
        writer.commit_transaction(30)
        promotion.join(60)
        assert promoted == [0]
        assert values(new, "orders") == list(range(5))
        assert committed(new, "readers", "orders") == 3
        reader.close()


def reason(bootstrap: str) -> str:
    found = log_of(bootstrap, "orders")
    return "" if found is None else found.reason
