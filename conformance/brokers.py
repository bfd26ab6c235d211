"""The cluster under test: three brokers with a scenario's settings, and fresh ones when one of them dies."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from conformance.goals import DEFAULT_SCENARIO
from lab.apache_kafka import ACCESS_CONTROL
from lab.cluster import Cluster

Starter: TypeAlias = Callable[[Path, Mapping[str, str], int], Cluster]
"""Makes a cluster in a folder, with settings, of so many brokers."""

# What the suites' own test clusters set: several partitions, racks that matter, and groups that settle fast.
COMMON = {
    "num.partitions": "4",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "group.initial.rebalance.delay.ms": "1000",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.share.min.record.lock.duration.ms": "1000",
}
#: clients need a certificate
MUTUAL = "mutual"
#: clients need a token of an OAuth endpoint
BEARER = "bearer"
#: clients need a password, and authenticate again every few seconds
PASSWORD = "password"
#: scenarios whose clusters are secured in any run
SECURED = frozenset({MUTUAL, BEARER, PASSWORD})
SCENARIOS = {
    DEFAULT_SCENARIO: (3, COMMON),
    "noautocreate": (3, {**COMMON, "auto.create.topics.enable": "false"}),
    # For tests that take it for granted that one broker holds everything.
    "alone": (1, COMMON),
    # An authorizer that allows what no ACL is about. Alone: nodes of a cluster have to be super users, and on
    # plaintext listeners every client would be one, too.
    "authorized": (1, {**COMMON, **ACCESS_CONTROL}),
    # Without TLS 1.3, as librdkafka runs this test: there a client learns only after the handshake that its
    # certificate is refused, and reports another error.
    MUTUAL: (1, {**COMMON, "ssl.enabled.protocols": "TLSv1.2"}),
    BEARER: (3, COMMON),
    PASSWORD: (3, {**COMMON, "connections.max.reauth.ms": "10000"}),
}


class Brokers:
    """Hands out the addresses of a healthy cluster; owns its processes and their folder.

    There is one cluster at a time: a request for another scenario ends the one that runs.
    """

    def __init__(self, starter: Starter, folder: Path, secured: Mapping[str, Starter] | None = None) -> None:
        """`secured` makes the clusters of the scenarios `SECURED`."""
        self._starter = starter
        self._secured = secured or {}
        self._folder = folder
        self._scenario = ""
        self._cluster: Cluster | None = None

    def __enter__(self) -> Brokers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def bootstrap(self, scenario: str) -> str:
        if self._cluster is None or scenario != self._scenario:
            self._stop()
            self._cluster, self._scenario = self._start(scenario), scenario
        return self._cluster.bootstrap

    @property
    def client(self) -> Mapping[str, str]:
        """What clients of the cluster need beside its addresses."""
        return {} if self._cluster is None else self._cluster.client

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables for the tests: files with keys and certificates."""
        return {} if self._cluster is None else self._cluster.environment

    def obituary(self) -> str:
        """Empty for a healthy cluster; else how a sick broker's log ends, and the cluster is ended."""
        assert self._cluster is not None, "its addresses were not requested"
        for server in self._cluster.brokers:
            if not server.healthy():
                state = "stopped answering" if server.runs() else "died"
                words = f"{server.name} at {server.bootstrap} {state}: {server.log_tail(8)}"
                self._stop()
                return words
        return ""

    def _start(self, scenario: str) -> Cluster:
        folder = self._folder / f"cluster-{scenario}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        brokers, settings = SCENARIOS[scenario]
        starter = self._secured[scenario] if scenario in SECURED else self._starter
        cluster = starter(folder, settings, brokers)
        cluster.start()
        return cluster

    def _stop(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()
            self._cluster = None


class ExternalBrokers(Brokers):
    """A cluster that runs already: it is neither started nor stopped here."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._cluster = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It goes on without us."""

    def bootstrap(self, scenario: str) -> str:
        return self._bootstrap

    def obituary(self) -> str:
        return ""
