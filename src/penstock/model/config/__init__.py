"""Config keys under Kafka's names: what exists, what is valid, and what a broker or topic ends up with.

Owns: the tables of keys (`*_keys`), their checks, config files, and the configs of a broker.
Imports: the rest of `model`.
Used by: every package that reads configs; `docs.render` makes `docs/configuration.md` from the tables.
"""

from penstock.model.config.broker import BrokerConfig, parse_broker_config
from penstock.model.config.broker_checks import is_sensitive
from penstock.model.config.broker_descriptions import (
    describe_broker,
    describe_dynamic_default,
    describe_group,
    describe_topic,
)
from penstock.model.config.broker_keys import BROKER_KEYS
from penstock.model.config.client_metrics import (
    CLIENT_METRICS_KEYS,
    check_client_metrics,
    compile_client_pattern,
    describe_client_metrics,
)
from penstock.model.config.declared import DeclaredTopic
from penstock.model.config.descriptions import ConfigEntry, ConfigSynonym, selected
from penstock.model.config.environment import environment_configs
from penstock.model.config.files import ConfigFile, configs_of, load_config_file
from penstock.model.config.group_keys import GROUP_KEYS
from penstock.model.config.groups import check_group_configs, group_values
from penstock.model.config.keys import ConfigKey, ConfigSource, ConfigType, ConfigValue, UpdateMode
from penstock.model.config.layers import effective_configs
from penstock.model.config.listeners import Endpoint
from penstock.model.config.tiered_topics import check_topic_configs
from penstock.model.config.topic_keys import TOPIC_KEYS
from penstock.model.config.topics import parse_topic_config, resolve_topic_configs, topic_values

__all__ = [
    "BROKER_KEYS",
    "CLIENT_METRICS_KEYS",
    "GROUP_KEYS",
    "TOPIC_KEYS",
    "BrokerConfig",
    "ConfigEntry",
    "ConfigFile",
    "ConfigKey",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "ConfigValue",
    "DeclaredTopic",
    "Endpoint",
    "UpdateMode",
    "check_client_metrics",
    "check_group_configs",
    "check_topic_configs",
    "compile_client_pattern",
    "configs_of",
    "describe_broker",
    "describe_client_metrics",
    "describe_dynamic_default",
    "describe_group",
    "describe_topic",
    "effective_configs",
    "environment_configs",
    "group_values",
    "is_sensitive",
    "load_config_file",
    "parse_broker_config",
    "parse_topic_config",
    "resolve_topic_configs",
    "selected",
    "topic_values",
]
