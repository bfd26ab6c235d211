"""Changes of links are checked by the controller."""

from __future__ import annotations

import pytest

from penstock.broker.handlers.config_checks import check_link_configs
from penstock.metadata.image import LINK, TOPIC, ClusterImage, TopicImage
from penstock.model.errors import PolicyViolation
from penstock.model.ids import TopicId


def image_with(state: str) -> ClusterImage:
    image = ClusterImage()
    image.features["penstock.version"] = 2
    image.add_topic(TopicImage("orders", TopicId(bytes(15) + b"\x09")))
    image.configs[TOPIC, "orders"] = {"penstock.link": f"west/{state}/{'A' * 22}/orders"}
    image.configs[LINK, "west"] = {"bootstrap.servers": "a:1"}
    return image


@pytest.mark.parametrize("state", ["mirroring", "promoting", "closing"])
def test_a_link_with_mirrored_topics_stays(state: str) -> None:
    image = image_with(state)
    with pytest.raises(PolicyViolation, match="topic orders is mirrored by link west: promote it first"):
        check_link_configs(image, "west", {})
    check_link_configs(image, "east", {})


def test_a_link_whose_topics_are_promoted_can_be_removed() -> None:
    check_link_configs(image_with("promoted"), "west", {})


def test_links_need_their_feature_level() -> None:
    image = image_with("mirroring")
    image.features["penstock.version"] = 1
    with pytest.raises(PolicyViolation, match="raise it with `penstock cluster upgrade`"):
        check_link_configs(image, "west", {"bootstrap.servers": "a:1"})
