"""A cluster at the level of the version before, its upgrade, and brokers that are older than its level."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.broker.app import lifecycle
from penstock.broker.base.features import INITIAL_FEATURES, SUPPORTED_FEATURES
from penstock.cli.cluster.feature_levels import Raise, possible_raises, raise_levels
from penstock.cli.direct import DirectLine
from penstock.cli.failure import Failure
from penstock.cli.quotas import alter_quotas
from penstock.metadata.levels import RELEASE
from penstock.model.config.access_keys import STANDARD_AUTHORIZER
from penstock.model.errors import ApiError
from penstock.net.access_client import add_acls, list_acls, set_password
from penstock.security.acls import Acl
from penstock.testing import broker
from penstock.wire.apis.endpoints import Feature
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.update_features import UPDATE_FEATURES, FeatureUpdate, UpdateFeaturesRequest
from tests.testing.cluster_clients import PATIENCE_S

AUTHORIZED = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
ACLS = [Acl(2, "t", 3, "User:ada", "*", 3, 3)]
OFF = r"need level 2 of penstock\.version, and this cluster works at 1"


def transact(bootstrap: str) -> None:
    """One transaction; a KafkaException if there can be none."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "t", "log_level": 0}, logger=None
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.commit_transaction(PATIENCE_S)


def test_abilities_unknown_to_the_version_before_are_off_until_the_upgrade(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cluster as 0.1.0 created it: without transactions, ACLs, users and quotas."""
    with monkeypatch.context() as before:
        before.setitem(INITIAL_FEATURES, RELEASE, 1)
        before.setitem(INITIAL_FEATURES, "transaction.version", 0)
        before.setitem(INITIAL_FEATURES, "share.version", 0)
        running = broker(config=AUTHORIZED)
        started = running.__enter__()
    try:
        with DirectLine(started.bootstrap, PATIENCE_S) as line:
            with pytest.raises(Failure, match=OFF):
                line.run(lambda port: add_acls(port, ACLS))
            with pytest.raises(Failure, match=OFF):
                line.run(lambda port: set_password(port, "ada", "SCRAM-SHA-512", "x", 4096))
            with pytest.raises(Failure, match=OFF):
                alter_quotas(line, {"user": "ada"}, {"producer_byte_rate": 1.0}, validate=False)
            # librdkafka asks for a coordinator until the timeout of init_transactions: a minute of nothing.
            asked = FindCoordinatorRequest(key_type=1, coordinator_keys=["t"])
            (found,) = line.send(FIND_COORDINATOR, asked).coordinators
            assert found.node_id == -1 and re.search(OFF, str(found.error_message))
            assert line.run(list_acls) == []

            raises = possible_raises(line)
            assert Raise(RELEASE, 1, 2) in raises
            raise_levels(line, raises)
            line.run(lambda port: add_acls(port, ACLS))
            line.run(lambda port: set_password(port, "ada", "SCRAM-SHA-512", "x", 4096))
            alter_quotas(line, {"user": "ada"}, {"producer_byte_rate": 1.0}, validate=False)
            transact(started.bootstrap)
            assert line.run(list_acls) == ACLS

            update = FeatureUpdate(feature=RELEASE, max_version_level=1, upgrade_type=2)
            request = UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update])
            refused = line.send(UPDATE_FEATURES, request)
            assert "so it cannot go back" in str(refused.error_message)
    finally:
        running.__exit__(None, None, None)


def test_an_older_broker_does_not_start_and_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as later:
        supported = {**SUPPORTED_FEATURES, RELEASE: (0, 3)}
        later.setitem(SUPPORTED_FEATURES, RELEASE, (0, 3))
        later.setitem(INITIAL_FEATURES, RELEASE, 3)
        later.setattr(
            lifecycle,
            "_FEATURES",
            [
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in supported.items()
            ],
        )
        with broker(data=tmp_path):
            pass
    with pytest.raises(ApiError) as refused, broker(data=tmp_path):
        pass
    text = str(refused.value)
    assert "works at level 3 of penstock.version; the broker understands 0 to 2" in text
    assert text.endswith("run the version that was finalised") and "\n" not in text
