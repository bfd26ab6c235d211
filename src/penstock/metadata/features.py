"""Decisions about features: the levels that the whole cluster works at.

A level is a record in the log, so all nodes change over at the same place. It is raised only when every
registered node understands it, and a node that does not understand the levels in force cannot register.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final

from penstock.metadata.broker_image import FeatureRanges
from penstock.metadata.image import ClusterImage
from penstock.metadata.levels import RELEASE
from penstock.model.errors import ApiError, ErrorCode, UnsupportedVersion
from penstock.wire.apis.update_features import FeatureUpdate, UpdateFeaturesRequest
from penstock.wire.metadata_records import FeatureLevelRecord
from penstock.wire.schema import Struct

__all__ = [
    "KRAFT_VERSION",
    "METADATA_VERSION",
    "UpgradeType",
    "check_number",
    "check_supported",
    "update_features",
]

#: the level of the metadata records themselves
METADATA_VERSION: Final = "metadata.version"
#: the level of the quorum: 1 if the log contains the voters (KIP-853). It is no record of the metadata.
KRAFT_VERSION: Final = "kraft.version"
_KRAFT_RANGE: Final = (0, 1)
_DISABLED: Final = (0, 0)
#: Features that are not lowered from this level on: records that lower levels do not have may be in the log.
_FINAL_FROM: Final = {RELEASE: 2}
#: The levels of metadata.version that have other records than the level before, up to Kafka's 4.3-IV0.
_CHANGED_RECORDS: Final = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30})
_LOST_RECORDS: Final = (
    "Refusing to perform the requested downgrade because it might delete metadata information."
)
_UNSAFE: Final = "Unsafe metadata downgrade is not supported in this version."


class UpgradeType(IntEnum):
    """How an update may change a level."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def check_supported(levels: Mapping[str, int], ranges: FeatureRanges) -> None:
    """Raise UnsupportedVersion unless a node with `ranges` can work at `levels`."""
    for name in {*levels, *ranges}:
        level = levels.get(name, 0)
        lowest, highest = ranges.get(name, _DISABLED)
        # A feature that is not finalized excludes no broker: its lowest level is that of a cluster that
        # uses it.
        if level and not lowest <= level <= highest:
            raise UnsupportedVersion(
                f"The cluster works at level {level} of {name}; the broker understands {lowest} to {highest}"
            )


def update_features(
    image: ClusterImage, request: UpdateFeaturesRequest, local: FeatureRanges, kraft_level: int = 0
) -> list[Struct]:
    """The new levels, all of them or an error; no records if they are only to be checked.

    `local` is what the active controller itself understands, `kraft_level` the level of the quorum.
    """
    check_number(image, request, local)
    records: list[Struct] = []
    seen: set[str] = set()
    for update in request.feature_updates:
        if update.feature in seen:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"The feature '{update.feature}' is named twice, or empty"
            )
        seen.add(update.feature)
        level = update.max_version_level
        if update.feature == KRAFT_VERSION:
            _check_quorum(update, kraft_level)
            continue
        current = image.features.get(update.feature, 0)
        if not current and update.feature not in local:
            raise _invalid(update, "The active controller does not know this feature.")
        _check_direction(update, current)
        for node, ranges in _nodes(image, local):
            lowest, highest = ranges.get(update.feature, _DISABLED)
            # Level 0 switches a feature off, as it is on brokers that do not know it.
            if not lowest <= level <= highest:
                raise _invalid(update, f"{node} only understands levels {lowest} to {highest}.")
        if level != current:
            records.append(FeatureLevelRecord(name=update.feature, feature_level=level))
    return [] if request.validate_only else records


def check_number(image: ClusterImage, request: UpdateFeaturesRequest, local: FeatureRanges) -> None:
    """Refuse a request with more features than there are, before any of them is looked at."""
    if len(request.feature_updates) > len({*image.features, *local, KRAFT_VERSION}):
        raise ApiError(ErrorCode.INVALID_REQUEST, "The request names more features than there are")


def _nodes(image: ClusterImage, local: FeatureRanges) -> Iterator[tuple[str, FeatureRanges]]:
    yield "The active controller", local
    for broker in image.brokers.values():
        yield f"Broker {broker.id}", broker.features
    for controller in image.controllers.values():
        yield f"Controller {controller.id}", controller.features


def _check_direction(update: FeatureUpdate, current: int) -> None:
    level = update.max_version_level
    if update.upgrade_type not in UpgradeType.__members__.values():
        raise _invalid(update, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _invalid(update, "A feature version cannot be less than 0.")
    upgrade = update.upgrade_type == UpgradeType.UPGRADE
    if level < current and upgrade and not update.allow_downgrade:
        raise _invalid(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade.",
        )
    if level > current and not upgrade:
        raise _invalid(update, "Can't downgrade to a newer version.")
    if level < current and update.feature == METADATA_VERSION:
        _check_records(update, current)
    if level < current and current >= _FINAL_FROM.get(update.feature, current + 1):
        raise _invalid(update, "Records of the present level may be in the log, so it cannot go back.")


def _check_records(update: FeatureUpdate, current: int) -> None:
    """A lower metadata.version has to have the same records, as with Kafka."""
    if _CHANGED_RECORDS.isdisjoint(range(update.max_version_level + 1, current + 1)):
        return
    is_unsafe = update.upgrade_type == UpgradeType.UNSAFE_DOWNGRADE
    raise _invalid(update, _UNSAFE if is_unsafe else _LOST_RECORDS)


def _check_quorum(update: FeatureUpdate, current: int) -> None:
    """The leader of the quorum raises its level itself, when it records the voters."""
    lowest, highest = _KRAFT_RANGE
    level = update.max_version_level
    _check_direction(update, current)
    if not lowest <= level <= highest:
        raise _invalid(update, f"The active controller only understands levels {lowest} to {highest}.")
    if level < current:
        raise _invalid(update, "Can't downgrade the version of this feature.")
    if level > current:
        raise _invalid(
            update,
            "The leader of the quorum raises it by itself, once it knows the directories and addresses of "
            "all voters.",
        )


def _invalid(update: FeatureUpdate, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.max_version_level} for feature {update.feature}. {reason}",
    )
