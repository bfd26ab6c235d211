"""Snapshots: replaying one gives the image that it was made of."""

from __future__ import annotations

from penstock.metadata.brokers import register_controller
from penstock.metadata.configs import config_records
from penstock.metadata.image import BROKER, ROLE, ClusterImage, Origin
from penstock.metadata.reassignment import start_reassignment
from penstock.metadata.snapshot import snapshot
from penstock.wire.apis.controller_registration import ControllerRegistrationRequest
from penstock.wire.apis.endpoints import Feature, Listener
from penstock.wire.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    ProducerIdsRecord,
)
from penstock.wire.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    QuotaEntity,
    UserScramCredentialRecord,
)
from tests.metadata.replays import replayed, state
from tests.metadata.stage import Stage


def test_an_empty_image_has_an_empty_snapshot() -> None:
    image = ClusterImage()
    image.offset = 17
    assert snapshot(image) == []
    assert state(replayed(image)) == state(image)


def test_everything_is_in_a_snapshot() -> None:
    # Longer than other functions because it has one record of each type.
    stage = Stage(4)
    listeners = [
        Listener(name="INTERNAL", host="a", port=1, security_protocol=1),
        Listener(name="PUBLIC", host="b", port=2),
    ]
    stage.register(5, rack="r", machine="m", listeners=listeners)
    stage.topic("plain", [1, 2], [2, 3])
    moving = stage.topic("moving", [1, 2], min_isr=1)
    stage.reassign({0: [3, 1]}, name="moving")
    rebuilt = stage.topic("rebuilt", [1, 2], min_isr=1)
    record = start_reassignment(stage.image, stage.policy, rebuilt, [1, 3], Origin.REBUILD)
    assert record is not None
    stage.commit([record])
    eligible = stage.topic("eligible", [4, 2])
    leaderless = stage.topic("leaderless", [4], min_isr=1)
    recovering = stage.topic("recovering", [4, 1], min_isr=1, unclean=True)
    stage.alter(recovering, [4])
    stage.beat(4, stop=True, lowest=0)
    stage.fence(4)
    stage.recover()
    directory = stage.image.brokers[3].log_directories
    stage.commit(
        [
            BrokerRegistrationChangeRecord(
                broker_id=3, broker_epoch=stage.epoch(3), log_dirs=directory, cordoned_log_dirs=directory
            ),
            ProducerIdsRecord(broker_id=1, next_producer_id=3000),
        ]
    )
    stage.commit(
        [
            UserScramCredentialRecord(name="u", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v"),
            AccessControlEntryRecord(id=b"1" * 16, resource_type=2, resource_name="t", pattern_type=4),
            ConfigRecord(resource_type=ROLE, resource_name="ops", name="User:u", value=""),
            ClientQuotaRecord(entity=[QuotaEntity(entity_type="user", entity_name="u")], key="k", value=2.5),
            ClientQuotaRecord(entity=[QuotaEntity(entity_type="user")], key="k", value=0.5),
        ]
    )
    stage.commit(config_records(stage.image, (BROKER, "3"), {"log.retention.ms": "5"}))
    features = [Feature(name="metadata.version", min_supported_version=7, max_supported_version=30)]
    request = ControllerRegistrationRequest(controller_id=9, listeners=listeners, features=features)
    stage.commit(register_controller(request))

    copy = replayed(stage.image)

    # Each of these would be lost if the snapshot forgot its field.
    assert moving.adding == [3]
    assert rebuilt.origin == Origin.REBUILD
    assert eligible.elr == [4]
    assert leaderless.last_known_leader == [4]
    assert recovering.leader_recovery
    assert stage.image.brokers[4].in_controlled_shutdown
    assert state(copy) == state(stage.image)
    assert copy.brokers[4].shutdown_offset >= stage.image.brokers[4].shutdown_offset
    assert copy.brokers[5].host == "m"
    assert copy.acls.roles_of("User:u") == ("ops",)
    assert len(copy.quotas) == 2


def test_an_image_goes_on_from_its_snapshot_like_the_original() -> None:
    stage, copy = Stage(3), Stage()
    stage.topic("t", [1, 2, 3])
    copy.image = replayed(stage.image)
    for each in (stage, copy):
        each.fence(1)
        each.alter(each.partition(), [2])
    assert state(copy.image) == state(stage.image)
