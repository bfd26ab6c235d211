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
        "With an authorizer: the most audit events per second that a broker writes to its log. The broker "
        "drops the others and counts them. 0 writes none.",
        low=0,
    ),
]
