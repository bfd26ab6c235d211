"""The topic configs of tiered storage, checked as Apache Kafka checks them."""

from __future__ import annotations

import pytest

from penstock.model.config import BrokerConfig, check_topic_configs, topic_values
from penstock.model.errors import InvalidConfig

TIERED = BrokerConfig(
    {"remote.log.storage.system.enable": "true", "penstock.remote.log.address": "s3://bucket/prefix"}
)
ENABLED = {"remote.storage.enable": "true"}


def test_a_tiered_topic_needs_a_broker_with_tiered_storage() -> None:
    with pytest.raises(InvalidConfig, match=r"^Tiered Storage functionality is disabled in the broker"):
        check_topic_configs(ENABLED, BrokerConfig())
    check_topic_configs(ENABLED, TIERED)


def test_a_topic_that_is_tiered_already_is_opened_without_tiered_storage() -> None:
    assert topic_values(ENABLED, BrokerConfig())["remote.storage.enable"] is True


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_compacted_topics_are_refused(policy: str) -> None:
    with pytest.raises(InvalidConfig, match=r"^Remote log storage is unsupported for the compacted topics$"):
        check_topic_configs({**ENABLED, "cleanup.policy": policy}, TIERED)


@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        (
            {"retention.ms": "100", "local.retention.ms": "-1"},
            r"^Invalid value -1 for configuration local.retention.ms: Value must not be -1 as retention.ms "
            r"value is set as 100\.$",
        ),
        (
            {"retention.ms": "100", "local.retention.ms": "101"},
            r"^Invalid value 101 for configuration local.retention.ms: Value must not be more than "
            r"retention.ms property value: 100$",
        ),
        (
            {"retention.bytes": "100", "local.retention.bytes": "-1"},
            r"must not be -1 as retention.bytes",
        ),
        ({"retention.bytes": "100", "local.retention.bytes": "101"}, r"retention.bytes property value: 100$"),
    ],
)
def test_local_retention_is_at_most_the_retention(configs: dict[str, str], reason: str) -> None:
    check_topic_configs(configs, TIERED)
    with pytest.raises(InvalidConfig, match=reason):
        check_topic_configs({**ENABLED, **configs}, TIERED)


@pytest.mark.parametrize(
    "configs",
    [
        {"retention.ms": "100", "local.retention.ms": "100"},
        {"retention.ms": "-1", "local.retention.ms": "7"},
        {"retention.bytes": "-1", "local.retention.bytes": "-1"},
        {"local.retention.bytes": "-2", "retention.bytes": "5"},
    ],
)
def test_other_local_retentions_are_accepted(configs: dict[str, str]) -> None:
    check_topic_configs({**ENABLED, **configs}, TIERED)


def test_without_copies_both_retentions_are_the_same() -> None:
    configs = {**ENABLED, "remote.log.copy.disable": "true", "retention.ms": "100"}
    check_topic_configs(configs, TIERED)
    check_topic_configs({**configs, "local.retention.ms": "100"}, TIERED)
    with pytest.raises(InvalidConfig, match=r"^When `remote.log.copy.disable` is set to true"):
        check_topic_configs({**configs, "local.retention.ms": "99"}, TIERED)


def test_disabling_needs_consent_to_the_deletion() -> None:
    with pytest.raises(InvalidConfig, match=r"^It is invalid to disable remote storage without deleting"):
        check_topic_configs({"remote.storage.enable": "false"}, TIERED, ENABLED)
    with pytest.raises(InvalidConfig, match=r"remote.storage.enable=false,remote.log.delete.on.disable=true"):
        check_topic_configs({}, TIERED, ENABLED)
    check_topic_configs({"remote.log.delete.on.disable": "true"}, TIERED, ENABLED)
    check_topic_configs({}, TIERED, {"remote.storage.enable": "false"})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, r"needs penstock.remote.log.address"),
        (
            {"penstock.remote.log.address": "/a", "penstock.mount": "b", "penstock.memory": "true"},
            r"mount",
        ),
        (
            {"penstock.remote.log.address": "/a", "penstock.encryption.key.provider": "aws-kms"},
            r"key.provider must be file or command, not aws-kms",
        ),
    ],
)
def test_tiered_storage_needs_an_address_and_keys_that_brokers_share(
    settings: dict[str, str], reason: str
) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        BrokerConfig({"remote.log.storage.system.enable": "true", **settings})
