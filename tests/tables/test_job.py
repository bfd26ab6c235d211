"""The job of a table, without Spark."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.jobs.supervision import Transient
from penstock.tables.job import topic_id_of
from penstock.testing import broker


def create_topic(admin: AdminClient) -> None:
    admin.create_topics([NewTopic("orders", 1)])["orders"].result(timeout=60)


def test_a_topic_that_is_created_again_has_another_id() -> None:
    with broker() as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        assert topic_id_of(admin, "orders") is None
        create_topic(admin)
        first = topic_id_of(admin, "orders")
        assert first is not None and topic_id_of(admin, "orders") == first
        admin.delete_topics(["orders"])["orders"].result(timeout=60)
        create_topic(admin)
        assert topic_id_of(admin, "orders") not in (None, first)


def test_a_cluster_that_does_not_answer_is_a_transient_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.tables.job._TIMEOUT_S", 1.0)
    with pytest.raises(Transient, match="topic orders: "):
        topic_id_of(AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": "2"}), "orders")
