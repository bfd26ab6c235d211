"""The broker configs of audit events."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.model.config.keys import ConfigKey, ConfigType

__all__ = ["AUDIT_KEYS", "FILE", "LOG", "SYSLOG", "TOPIC", "SyslogAddress", "destinations", "syslog_address"]

LOG: Final = "log"
TOPIC: Final = "topic"
FILE: Final = "file"
SYSLOG: Final = "syslog"
_ADDRESS: Final = re.compile(r"(tls|tcp)://(\[[0-9a-fA-F:.]+\]|[^:/\[\]]+):(\d{1,5})")


class SyslogAddress(NamedTuple):
    host: str
    port: int
    tls: bool


def destinations(configured: Iterable[str]) -> frozenset[str]:
    """The sinks of audit events that a config names; none for `off`."""
    named = set(configured)
    if "both" in named:
        named |= {LOG, TOPIC}
    return frozenset(named & {LOG, TOPIC, FILE, SYSLOG})


def syslog_address(text: str) -> SyslogAddress:
    """The address in a config; ValueError if it is none."""
    found = _ADDRESS.fullmatch(text)
    if found is None or not 0 < int(found[3]) < 65536:
        raise ValueError(f"{text!r} is not tls://HOST:PORT or tcp://HOST:PORT")
    return SyslogAddress(found[2].strip("[]"), int(found[3]), found[1] == "tls")


def _syslog_address(text: str) -> str | None:
    try:
        if text:
            syslog_address(text)
    except ValueError:
        return "must be tls://HOST:PORT or tcp://HOST:PORT"
    return None


def _alone(named: tuple[str, ...]) -> str | None:
    if "off" in named and len(named) > 1:
        return "must not have other elements beside off"
    return None if named else "must name a destination, or off"


AUDIT_KEYS: list[ConfigKey] = [
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
        ConfigType.LIST,
        ("log",),
        "Where audit events go, separated by commas: `log`, `topic` (the internal topic `__audit`), `file` "
        "(penstock.audit.file.path), `syslog` (penstock.audit.syslog.address), `both` (`log,topic`), `off`.",
        choices=(LOG, TOPIC, FILE, SYSLOG, "both", "off"),
        check=_alone,
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
        "The most audit events that wait to be written to the audit topic, and to each other sink.",
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
        "penstock.audit.sessions.enable",
        ConfigType.BOOLEAN,
        True,
        "Whether logins, re-authentications and the ends of authenticated sessions are audit events. Failed "
        "logins always are.",
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
        "penstock.audit.data.topics",
        ConfigType.LIST,
        (),
        "Topics whose reads and writes by clients are audited: names, or prefixes with a star at the end, "
        "such as `payments,hr-*`.",
    ),
    ConfigKey(
        "penstock.audit.data.window.ms",
        ConfigType.INT,
        60_000,
        "The reads of a topic by a principal within this time are one audit event, and so are the writes.",
        low=1000,
    ),
    ConfigKey(
        "penstock.audit.file.path",
        ConfigType.STRING,
        "",
        "The file of audit events, one line of JSON each; `{node}` stands for the id of the broker. Empty: "
        "`audit/audit.log` in the first data directory. Only its owner can read it.",
    ),
    ConfigKey(
        "penstock.audit.file.bytes.max",
        ConfigType.LONG,
        64 << 20,
        "The size at which the audit file is renamed to FILE.1, and older ones to FILE.2 and so on.",
        low=4096,
    ),
    ConfigKey(
        "penstock.audit.file.count.max",
        ConfigType.INT,
        20,
        "The most older audit files that are kept. An audit event reports each file that is deleted.",
        low=0,
        high=10_000,
    ),
    ConfigKey(
        "penstock.audit.syslog.address",
        ConfigType.STRING,
        "",
        "The syslog server of audit events (RFC 5424): `tls://HOST:PORT` (RFC 5425), or `tcp://HOST:PORT` on "
        "a network that you trust.",
        check=_syslog_address,
    ),
    ConfigKey(
        "penstock.audit.syslog.truststore.location",
        ConfigType.STRING,
        "",
        "A PEM file with the certificates that verify the syslog server. Empty: those of the system.",
    ),
    ConfigKey(
        "penstock.audit.syslog.keystore.location",
        ConfigType.STRING,
        "",
        "A PEM file with the certificate and the key of the broker as a client of the syslog server. Empty: "
        "none.",
    ),
    ConfigKey(
        "penstock.audit.hash.key.file",
        ConfigType.STRING,
        "",
        "A file with at least 16 bytes that are the key of the chain of audit events. Without a key, a user "
        "who can change the events can compute the chain anew.",
    ),
    ConfigKey(
        "penstock.audit.checkpoint.ms",
        ConfigType.INT,
        300_000,
        "A chain of audit events without an event for this time gets a checkpoint, so that a removed end "
        "becomes visible. 0 for none.",
        low=0,
    ),
]
