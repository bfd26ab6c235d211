"""The commands of `penstock`, in groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["GROUPS", "KNOWN_AS"]

#: the commands in the order of the help; each is a module of `commands`
GROUPS: Final[Mapping[str, Sequence[str]]] = {
    "Start here": ("up", "topic", "produce", "consume", "sql", "table", "profile"),
    "Consumers and queues": ("group", "share", "records", "transaction", "bridge"),
    "Clusters": ("cluster", "link", "broker", "partition", "quorum", "cert", "plan"),
    "Observe": ("health", "top", "console", "dashboards", "bench"),
    "Configs and security": ("config", "quota", "user", "role", "acl", "token", "audit"),
    "Data on disk": ("log", "encryption", "backup", "restore"),
    "More": ("container", "telemetry", "version"),
}
#: what users of other tools type, and the command here
KNOWN_AS: Final = {
    "start": "up",
    "run": "up",
    "serve": "up",
    "server": "up",
    "broker-start": "up",
    "topics": "topic",
    "groups": "group",
    "consumer": "consume",
    "consumers": "group",
    "subscribe": "consume",
    "read": "consume",
    "producer": "produce",
    "publish": "produce",
    "send": "produce",
    "query": "sql",
    "select": "sql",
    "tables": "table",
    "sink": "table",
    "queue": "share",
    "status": "cluster",
    "configs": "config",
    "acls": "acl",
    "users": "user",
    "ui": "console",
    "security": "acl",
}
