"""The registration of a broker that is a cluster by itself."""

from __future__ import annotations

from penstock.broker.app.registration import standalone_registration
from penstock.broker.base.features import SUPPORTED_FEATURES
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.net.listener import Listener
from penstock.wire.metadata_records import FeatureLevelRecord, RegisterBrokerRecord
from tests.storage.logs import Tokens

LISTENER = Listener("CLIENTS", "0.0.0.0", 9092, "broker.example", 19092)


def test_a_new_cluster_gets_its_feature_levels_before_the_registration() -> None:
    config = BrokerConfig({"node.id": "4", "broker.rack": "r1"})
    *before, registered = standalone_registration(
        ClusterImage(), config, Tokens(), 10, [LISTENER], [bytes(16)]
    )
    assert any(isinstance(record, FeatureLevelRecord) for record in before)
    assert isinstance(registered, RegisterBrokerRecord)
    assert registered.broker_id == 4
    assert registered.broker_epoch == 10 + len(before), "the epoch is the offset of the record"
    assert not registered.fenced
    assert registered.rack == "r1"
    assert registered.log_dirs == [bytes(16)]
    assert [(e.name, e.host, e.port) for e in registered.end_points] == [("CLIENTS", "broker.example", 19092)]
    assert {f.name for f in registered.features} == set(SUPPORTED_FEATURES)
