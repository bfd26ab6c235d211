"""The plan of `penstock cluster start`: creates the folders of a cluster, or compares them with the options.

The folders store the settings of a cluster. If the command is repeated, its options must agree with them;
omitted options keep their values.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.cli.cluster.broker_home import BrokerHome
from penstock.cli.cluster.listening import chosen_port, free_port, internal_port
from penstock.cli.cluster.relay import Route
from penstock.cli.cluster.relay_home import RelayHome
from penstock.cli.cluster.security import SECURE_LISTENER, ClusterSecurity
from penstock.cli.config_sources import effective
from penstock.cli.failure import misused
from penstock.cli.options import DEFAULT_BROKERS, DEFAULT_FIRST_ID, DEFAULT_HOST, DEFAULT_PORT, pairs
from penstock.cli.private_files import is_secret
from penstock.model.addresses import bracketed, parse_address

if TYPE_CHECKING:
    from penstock.model.config import DeclaredTopic

__all__ = ["EACH_BROKERS_OWN", "ClusterPlan", "check_same", "make_homes", "planned", "replication_defaults"]

#: where there are this many brokers, each partition has as many replicas, two of which must be in sync
_REPLICAS: Final = 3
_RACK: Final = "broker.rack"
#: configs that differ between the brokers of a cluster
EACH_BROKERS_OWN: Final = frozenset(
    {
        "node.id",
        "broker.id",
        "log.dir",
        "log.dirs",
        "listeners",
        "advertised.listeners",
        "controller.quorum.voters",
        "process.roles",
        "broker.host",
        "broker.port",
        "cluster.bootstrap_servers",
        "cluster.internal_port_offset",
    }
)


class ClusterPlan(NamedTuple):
    """The options of a cluster, None if omitted; `configs` apply to all brokers."""

    brokers: int | None = None
    host: str | None = None
    #: of the first broker; 0 for any
    port: int | None = None
    #: the number of the first broker, 0 or 1
    first_id: int | None = None
    #: given to the brokers in turn
    racks: Sequence[str] = ()
    configs: Mapping[str, str] = {}
    #: the names of those `configs` that are not from the environment alone
    said: Collection[str] = ()
    topics: Sequence[DeclaredTopic] = ()
    #: whether to create certificates and an admin user
    secure: bool = False
    #: whether relays stand in front of the brokers, for development
    relays: bool = False


def planned(plan: ClusterPlan, config: Path | None, settings: Sequence[str]) -> ClusterPlan:
    """A plan with the settings of all brokers, without ids, addresses and voters."""
    from penstock.model.config import configs_of

    named = configs_of(pairs(settings, "--set").items())
    for name in named:
        if name in EACH_BROKERS_OWN:
            misused(f"{name} is set per broker, from --brokers, --host, --port and --data: leave it out")
    file, configs = effective(config, {}, settings)
    for name, reason in file.refused.items():
        print(f"{name} is refused: {reason}", file=sys.stderr)
    for name, reason in file.ignored.items():
        print(f"{name} has no effect: {reason}", file=sys.stderr)
    return plan._replace(
        configs={name: value for name, value in configs.items() if name not in EACH_BROKERS_OWN},
        said={*file.configs, *named},
        topics=file.topics,
    )


def make_homes(directory: Path, plan: ClusterPlan) -> list[BrokerHome]:
    """Create folders for n brokers, the first five of which are voters; all of them, or none."""
    from penstock.model.config import BrokerConfig
    from penstock.model.config.layers import INTERNAL, MAX_VOTERS
    from penstock.model.ids import format_topic_id
    from penstock.security.mechanism_checks import check_mechanisms

    if "penstock.memory" in plan.configs:
        misused("penstock.memory would lose the votes of each broker that ends: remove it")
    brokers, bare = plan.brokers or DEFAULT_BROKERS, plan.host or DEFAULT_HOST
    first = DEFAULT_PORT if plan.port is None else plan.port
    first_id = DEFAULT_FIRST_ID if plan.first_id is None else plan.first_id
    homes = [BrokerHome(directory, first_id + i) for i in range(brokers)]
    taken: set[int] = set()
    clients = [chosen_port(bare, first and first + i, taken) for i in range(brokers)]
    internal = [internal_port(bare, port, taken) for port in clients]
    host = bracketed(bare)
    voters = zip(homes[:MAX_VOTERS], internal, strict=False)
    common = {
        "controller.quorum.voters": ",".join(f"{home.id}@{host}:{port}" for home, port in voters),
        # Else it would follow from the addresses, and data of an earlier cluster on these ports would fit.
        "penstock.cluster.id": format_topic_id(random.randbytes(16)),
        **replication_defaults(brokers),
    }
    security = ClusterSecurity(directory)
    name = SECURE_LISTENER if plan.secure else "PLAINTEXT"
    routes = _routes(homes, bare, clients, internal, taken) if plan.relays else []
    configs = [
        {
            "node.id": str(home.id),
            **_listeners(home, f"{name}://{host}", f"{INTERNAL}://{host}", client_port, inner_port, routes),
            "log.dirs": str(home.data.absolute()),
            "process.roles": "broker,controller" if home in homes[:MAX_VOTERS] else "broker",
            **common,
            **(security.configs_of(home) if plan.secure else {}),
            **_configs_of(plan, home.id - first_id),
        }
        for home, client_port, inner_port in zip(homes, clients, internal, strict=True)
    ]
    for each in configs:
        check_mechanisms(BrokerConfig(each))  # refuses what no broker would start with
    if plan.secure:
        security.create()
        security.issue(homes, bare)
    if routes:
        RelayHome(directory).create(routes)
    _write(homes, configs, plan.topics)
    return homes


def _routes(
    homes: Sequence[BrokerHome], host: str, clients: Sequence[int], internal: Sequence[int], taken: set[int]
) -> list[Route]:
    """A relay on each port that a broker advertises; the broker itself listens on another port."""
    return [
        Route(home.id, host, port, free_port(host, 0, taken))
        for home, ports in zip(homes, zip(clients, internal, strict=True), strict=True)
        for port in ports
    ]


def _listeners(
    home: BrokerHome, client: str, inner: str, client_port: int, inner_port: int, routes: Sequence[Route]
) -> dict[str, str]:
    own = [route.target for route in routes if route.broker == home.id]
    advertised = f"{client}:{client_port},{inner}:{inner_port}"
    if not own:
        return {"listeners": advertised}
    return {"listeners": f"{client}:{own[0]},{inner}:{own[1]}", "advertised.listeners": advertised}


def check_same(directory: Path, homes: Sequence[BrokerHome], plan: ClusterPlan) -> None:
    """Raise a Failure if the plan differs from an existing cluster."""
    if plan.brokers not in (None, len(homes)):
        misused(
            f"{directory} has {len(homes)} brokers, not {plan.brokers}: `penstock broker add` and `remove` "
            f"change that"
        )
    host, port = parse_address(homes[0].address)
    if plan.host not in (None, host) or plan.port not in (None, 0, port):
        misused(
            f"the first broker in {directory} is at {homes[0].address}: leave --host and --port out, or "
            f"choose another --data for another cluster"
        )
    if plan.relays and not RelayHome(directory).exists:
        misused(f"the cluster in {directory} was created without --relays: choose another --data")
    if plan.secure and not ClusterSecurity(directory).exists:
        misused(f"the cluster in {directory} was created without --secure: docs/tls.md has the way to TLS")
    first_id = 0 if homes[0].id == 0 else DEFAULT_FIRST_ID
    if plan.first_id not in (None, first_id):
        misused(f"the brokers in {directory} count from {first_id}: leave --first-id out")
    requested = plan._replace(configs={name: v for name, v in plan.configs.items() if name in plan.said})
    for home in homes:
        for name, value in _configs_of(requested, home.id - first_id).items():
            if (there := home.configs.get(name)) != value:
                difference = f"{there or 'not set'} in {home.config_file}, not {value}"
                if is_secret(name):
                    difference = f"different in {home.config_file}"
                misused(
                    f"{name} is {difference}: edit the brokers' files while they are stopped, or leave it out"
                )
        for topic in plan.topics:
            if topic not in home.topics:
                misused(
                    f"topic {topic.name} is not declared like this in {home.config_file}: leave it out, and "
                    f"see `penstock topic --help`"
                )


def _configs_of(plan: ClusterPlan, position: int) -> dict[str, str]:
    """The configs of the broker at a position, from 0."""
    rack = {_RACK: plan.racks[position % len(plan.racks)]} if plan.racks else {}
    return {**plan.configs, **rack}


def replication_defaults(brokers: int) -> dict[str, str]:
    """The replication configs of a new cluster; `brokers` are those that can have a replica each."""
    replicas = min(brokers, _REPLICAS)
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(max(1, replicas - 1)),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(max(1, replicas - 1)),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(max(1, replicas - 1)),
        "penstock.self.healing.enable": "true",
        "penstock.balance.new.brokers": "true",
    }


def _write(
    homes: Sequence[BrokerHome], configs: Sequence[Mapping[str, str]], topics: Sequence[DeclaredTopic]
) -> None:
    try:
        for home, own in zip(homes, configs, strict=True):
            home.write(own, topics)
    except BaseException:
        # A partly created cluster would be taken for a smaller one. Other files in the folders are kept.
        for home in homes:
            if home.config_file.exists():
                home.config_file.unlink()
        raise
