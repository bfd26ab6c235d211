"""The broker configs of authorisation."""

from __future__ import annotations

from typing import Final

from penstock.model.config.keys import ConfigKey, ConfigType

__all__ = ["ACCESS_KEYS", "STANDARD_AUTHORIZER"]

#: Kafka's class for the authorizer whose ACLs are in the metadata log
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def _networks(value: tuple[str, ...]) -> str | None:
    if value:
        from ipaddress import ip_network  # only brokers with a console pay for the import

        try:
            for each in value:
                ip_network(each, strict=False)
        except ValueError as error:
            return f"must be addresses or networks such as 10.0.0.0/24: {error}"
    return None


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
    ConfigKey(
        "penstock.console.addresses",
        ConfigType.LIST,
        (),
        "Addresses and networks of web consoles. Connections from them state the address of their browser in "
        "the client id. Failed logins count for the browser then, not for the console and all its users, and "
        "audit events have the browser as `visitor`. Other clients at these addresses are believed, too.",
        check=_networks,
        repeatable=True,
    ),
]
