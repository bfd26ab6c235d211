"""The commands of `penstock`, in groups, with a sentence of help for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["GROUPS", "KNOWN_AS", "SUMMARIES"]

#: The commands in the order of the help, each with the first sentence of its own help. Each is a module of
#: `commands`, which the help and completion would have to load for the sentence.
GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "Start here": {
        "up": "Run a broker until SIGTERM or Ctrl-C.",
        "topic": "Create, list, describe, alter and delete topics.",
        "produce": "Send each line as one message, and print the number of acknowledged messages.",
        "consume": "Print messages as they arrive, new ones or from a given start, until Ctrl-C.",
        "sql": "Query topics with SQL, through DuckDB.",
        "table": "Keep Delta tables of topics, by a job of Spark.",
        "profile": "Name clusters, for --profile.",
    },
    "Consumers and queues": {
        "group": "List, describe and delete consumer groups and streams groups, and move their offsets.",
        "share": "List, describe, move and delete share groups, and send dead letters back.",
        "records": "Delete the oldest messages of topics.",
        "transaction": "List and describe transactions, and end those that hang.",
        "bridge": "Copy messages between another system and a topic, at least once, until Ctrl-C.",
    },
    "Clusters": {
        "cluster": "Start, monitor and stop a cluster on this machine.",
        "link": "Mirror topics of another cluster at the same offsets, and take over from it.",
        "broker": "Start, stop, add and remove brokers of a cluster here.",
        "partition": "Move partitions between brokers.",
        "quorum": "Describe the metadata quorum, and recover a lost one.",
        "cert": "Renew the certificates of a secured cluster.",
        "plan": (
            "Plan the machines, brokers, disks and network for a workload, and show the binding constraint."
        ),
    },
    "Observe": {
        "health": "Probe every broker of a cluster, and show its health.",
        "top": "Show rates, sizes, replica lag and consumer lag of topics and groups, live.",
        "console": "Serve a web console for a cluster, until Ctrl-C.",
        "dashboards": "Grafana dashboards and Prometheus alert rules.",
        "bench": "Send and receive messages at a rate, and show throughput, latencies and their histogram.",
    },
    "Configs and security": {
        "config": "Show and change the configs of topics, brokers and groups.",
        "quota": "List and change the quotas of users, client ids and addresses.",
        "user": "List and change users with SCRAM passwords.",
        "role": "List and change the members of roles.",
        "acl": "List and change ACLs, and explain decisions.",
        "token": "Create, renew, end and list delegation tokens, with which clients log in as their owner.",
        "audit": "Check audit events.",
    },
    "Data on disk": {
        "log": "Print and verify segments and indexes on disk.",
        "encryption": "Encrypt the data directories of a stopped broker.",
        "backup": "Back up any Kafka cluster to an archive, and look after it.",
        "restore": (
            "Restore a cut into the data directory of a new cluster, or topics of it into a running one."
        ),
    },
    "More": {
        "container": "Run brokers in containers, and in pods of Kubernetes.",
        "telemetry": "GPU telemetry: collectors, the Spark pipeline, its API and reports, and a demo.",
        "version": "Show the versions of Penstock, Python and librdkafka.",
    },
}
#: by command
SUMMARIES: Final[Mapping[str, str]] = {
    name: text for group in GROUPS.values() for name, text in group.items()
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
