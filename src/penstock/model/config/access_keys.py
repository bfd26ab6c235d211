"""The broker configs of authorisation."""

from __future__ import annotations

from typing import Final

from penstock.model.config.keys import ConfigKey, ConfigType

__all__ = ["ACCESS_KEYS", "STANDARD_AUTHORIZER"]

#: Kafka's class for the authorizer whose ACLs are in the metadata log
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

ACCESS_KEYS: list[ConfigKey] = [
    ConfigKey(
        "authorizer.class.name",
        ConfigType.STRING,
        "",
        f"`{STANDARD_AUTHORIZER}` enables ACLs: a request needs an ACL that allows it. Empty: every client "
        "may do everything. Set it on all nodes.",
        choices=("", STANDARD_AUTHORIZER),
    ),
    ConfigKey(
        "allow.everyone.if.no.acl.found",
        ConfigType.BOOLEAN,
        False,
        "With an authorizer: whether a resource that no ACL affects is open to every principal.",
    ),
    ConfigKey(
        "super.users",
        ConfigType.STRING,
        "",
        "With an authorizer: principals that may do everything, separated by semicolons, for example "
        "`User:admin;User:CN=node1,O=acme`. The principals of the nodes belong here.",
    ),
    ConfigKey(
        "penstock.audit.events.per.second.max",
        ConfigType.INT,
        100,
        "The most audit events per second that a broker writes. The broker drops the others and counts them. "
        "Executed changes have a limit of their own, of the same number. 0 writes none.",
        low=0,
    ),
    ConfigKey(
        "penstock.audit.destination",
        ConfigType.STRING,
        "log",
        "Where audit events go: `log`, `topic` (the internal topic `__audit`), `both` or `off`.",
        choices=("off", "log", "topic", "both"),
    ),
    ConfigKey(
        "penstock.audit.aggregation.ms",
        ConfigType.INT,
        10_000,
        "Equal denials and equal failed authentications within this time are one audit event with a count. "
        "0 writes each of them.",
        low=0,
    ),
    ConfigKey(
        "penstock.audit.queue.events.max",
        ConfigType.INT,
        10_000,
        "The most audit events that wait to be written to the audit topic.",
        low=1,
    ),
    ConfigKey(
        "penstock.audit.overflow",
        ConfigType.STRING,
        "drop",
        "The effect of a full queue of the audit topic: `drop` drops events and counts them; `block` "
        "makes administrative requests wait, and refuses them after 30 seconds. Other events are dropped.",
        choices=("drop", "block"),
    ),
    ConfigKey(
        "penstock.audit.topic.num.partitions",
        ConfigType.INT,
        1,
        "The number of partitions of the audit topic when it is created.",
        low=1,
    ),
    ConfigKey(
        "penstock.audit.topic.replication.factor",
        ConfigType.SHORT,
        3,
        "The replication factor of the audit topic when it is created.",
        low=1,
    ),
    ConfigKey(
        "penstock.audit.topic.retention.ms",
        ConfigType.LONG,
        2_592_000_000,
        "The retention of the audit topic when it is created.",
        low=-1,
    ),
    ConfigKey(
        "penstock.authentication.failures.per.ip.max",
        ConfigType.INT,
        0,
        "The most failed authentications of one address in penstock.authentication.failures.window.ms. The "
        "broker then refuses its connections to listeners with TLS or SASL until the window has passed. 0 "
        "for no limit.",
        low=0,
    ),
    ConfigKey(
        "penstock.authentication.failures.window.ms",
        ConfigType.INT,
        60_000,
        "See penstock.authentication.failures.per.ip.max.",
        low=1000,
    ),
]
