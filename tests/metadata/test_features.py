"""Features: levels that are raised when every node knows how (KIP-584, 778)."""

from __future__ import annotations

import pytest

from penstock.metadata.broker_image import FeatureRanges
from penstock.metadata.brokers import register_controller
from penstock.metadata.features import UpgradeType, check_supported, update_features
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis.controller_registration import ControllerRegistrationRequest
from penstock.wire.apis.endpoints import Feature
from penstock.wire.apis.update_features import FeatureUpdate, UpdateFeaturesRequest
from penstock.wire.metadata_records import FeatureLevelRecord
from penstock.wire.schema import Struct
from tests.metadata.stage import Stage

METADATA = Feature(name="metadata.version", min_supported_version=7, max_supported_version=30)
LOCAL: FeatureRanges = {"metadata.version": (7, 31), "group.version": (0, 2)}


def stage(highest: int = 2) -> Stage:
    made = Stage()
    groups = Feature(name="group.version", min_supported_version=0, max_supported_version=highest)
    made.register(1, features=[METADATA, groups])
    return made


def update(
    where: Stage, name: str, level: int, kind: int = UpgradeType.UPGRADE, *, only_check: bool = False
) -> list[Struct]:
    requested = FeatureUpdate(feature=name, max_version_level=level, upgrade_type=kind)
    request = UpdateFeaturesRequest(feature_updates=[requested], validate_only=only_check)
    records = update_features(where.image, request, LOCAL)
    where.commit(records)
    return records


def test_a_level_is_raised_lowered_and_switched_off() -> None:
    where = stage()
    for level, kind in ((2, 1), (1, 2), (0, 3)):
        update(where, "group.version", level, kind)
        assert where.image.features.get("group.version", 0) == level
    assert update(where, "group.version", 0) == []


def test_checking_changes_nothing() -> None:
    where = stage()
    assert update(where, "group.version", 2, only_check=True) == []
    with pytest.raises(ApiError):
        update(where, "group.version", 3, only_check=True)


@pytest.mark.parametrize(
    ("name", "level", "kind", "reason"),
    [
        ("group.version", 3, 1, "controller only understands"),
        ("group.version", 1, 0, "upgrade type"),
        ("group.version", 1, 4, "upgrade type"),
        ("group.version", -1, 2, "less than 0"),
        ("group.version", 1, 2, "newer version"),
        ("metadata.version", 31, 1, "Broker 1 only understands levels 7 to 30"),
        ("metadata.version", 29, 1, "without setting the upgrade type"),
        ("metadata.version", 29, 2, "might delete metadata information"),
        ("metadata.version", 29, 3, "Unsafe metadata downgrade is not supported"),
        ("kraft.version", 1, 1, "The leader of the quorum raises it by itself"),
        ("kraft.version", 2, 1, "only understands levels 0 to 1"),
        ("kraft.version", -1, 2, "less than 0"),
        ("nobody.knows", 1, 1, "does not know"),
        ("nobody.knows", 0, 2, "does not know"),
    ],
)
def test_updates_that_cannot_be(name: str, level: int, kind: int, reason: str) -> None:
    with pytest.raises(ApiError, match=reason) as refused:
        update(stage(), name, level, kind)
    assert refused.value.code == ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.parametrize(("current", "lowest"), [(29, 23), (22, 17), (16, 15), (12, 11)])
def test_metadata_version_is_lowered_as_far_as_the_records_are_the_same(current: int, lowest: int) -> None:
    where = stage()
    where.commit([FeatureLevelRecord(name="metadata.version", feature_level=current)])
    with pytest.raises(ApiError, match="might delete"):
        update(where, "metadata.version", lowest - 1, UpgradeType.SAFE_DOWNGRADE)
    update(where, "metadata.version", lowest, UpgradeType.SAFE_DOWNGRADE)
    assert where.image.features["metadata.version"] == lowest


def test_the_level_of_the_quorum_is_not_lowered() -> None:
    where = stage()
    for kind in (UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE):
        update_ = FeatureUpdate(feature="kraft.version", max_version_level=0, upgrade_type=kind)
        request = UpdateFeaturesRequest(feature_updates=[update_])
        with pytest.raises(ApiError, match="Can't downgrade the version of this feature"):
            update_features(where.image, request, LOCAL, kraft_level=1)
    same = FeatureUpdate(feature="kraft.version", max_version_level=1)
    request = UpdateFeaturesRequest(feature_updates=[same])
    assert update_features(where.image, request, LOCAL, kraft_level=1) == []


def test_every_registered_node_must_understand_the_level() -> None:
    with pytest.raises(ApiError, match="Broker 1"):
        update(stage(highest=1), "group.version", 2)
    where = stage()
    where.commit(register_controller(ControllerRegistrationRequest(controller_id=5, features=[METADATA])))
    with pytest.raises(ApiError, match="Controller 5"):
        update(where, "group.version", 2)


def test_all_updates_happen_or_none() -> None:
    where = stage()
    updates = [FeatureUpdate(feature="group.version", max_version_level=level) for level in (1, 2)]
    with pytest.raises(ApiError) as refused:
        update_features(where.image, UpdateFeaturesRequest(feature_updates=updates), LOCAL)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    updates[1] = FeatureUpdate(feature="unknown", max_version_level=1)
    with pytest.raises(ApiError):
        update_features(where.image, UpdateFeaturesRequest(feature_updates=updates), LOCAL)


def test_a_node_must_understand_the_levels_in_force() -> None:
    levels = {"metadata.version": 30, "group.version": 1}
    check_supported(levels, {"metadata.version": (7, 30), "group.version": (0, 1), "newer": (1, 1)})
    for ranges in ({"metadata.version": (7, 30)}, {"metadata.version": (31, 32), "group.version": (0, 1)}):
        with pytest.raises(ApiError) as refused:
            check_supported(levels, ranges)
        assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_a_request_with_too_many_features_is_refused_as_a_whole() -> None:
    where = stage()
    updates = [FeatureUpdate(feature=f"unknown-{i}", max_version_level=1) for i in range(4)]
    with pytest.raises(ApiError) as refused:
        update_features(where.image, UpdateFeaturesRequest(feature_updates=updates), LOCAL)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    with pytest.raises(ApiError) as unknown:
        update_features(where.image, UpdateFeaturesRequest(feature_updates=updates[:2]), LOCAL)
    assert unknown.value.code == ErrorCode.INVALID_UPDATE_VERSION
