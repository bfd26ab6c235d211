"""The brokers of one machine: ids, ports, folders and configs.

    DIR/machine.yaml           what must not change: number, name, cluster id; written only if it changes
    DIR/broker-1/broker.yaml   the configs of the first core, written at each start if they change
    DIR/broker-1/data/         its data
    DIR/broker-2/...

A machine has a number, from 1. Its brokers have the ids (number - 1) * 100 + 1, + 2 and so on. The common
port is that of the machine's configs, and the brokers' own ports follow it. The first broker may be a voter
of the metadata quorum, the others are not: a machine that fails takes one vote.
"""

from __future__ import annotations

import os
import random
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.cli.cluster.broker_home import BrokerHome
from penstock.cli.cluster.listening import free_block, is_free_block
from penstock.cli.cluster.plan import replication_defaults
from penstock.cli.config_sources import resolved_configs
from penstock.cli.failure import Failure, misused
from penstock.cli.machine.cgroup import cpu_limit
from penstock.cli.private_files import write_private
from penstock.model.config import BrokerConfig
from penstock.model.config.layers import INTERNAL, MAX_VOTERS
from penstock.model.config.listeners import is_loopback
from penstock.model.ids import format_topic_id
from penstock.security.principal import ANONYMOUS

__all__ = ["MOST_CORES", "Machine", "available_cores", "lay_out"]

#: ids that each machine has
MOST_CORES: Final = 100
_FILE: Final = "machine.yaml"
_INTERNAL_OFFSET: Final = 10_000
#: configs whose values the layout reads
_LAID_OUT: Final = frozenset(
    {
        *("node.id", "broker.id", "log.dirs", "listeners", "advertised.listeners", "process.roles"),
        *("controller.listener.names", "controller.quorum.voters", "penstock.cluster.id", "penstock.machine"),
    }
)
_ADDRESS: Final = re.compile(r"(?P<name>[^:]+)://(?P<host>\[[^\]]*\]|[^:]*):(?P<port>[0-9]+)")
_VOTER: Final = re.compile(r"(?P<number>[0-9]+)@(?P<host>\[[^\]]*\]|[^:]+):(?P<port>[0-9]+)")
_VOTERS: Final = "controller.quorum.voters"
_CLUSTER_ID: Final = "penstock.cluster.id"
_ANY_HOST: Final = {"", "0.0.0.0", "[::]"}
_HIGHEST_PORT: Final = 65_535
#: more brokers send heartbeats to the same controller, so each sends half as many as a single one
_HEARTBEAT_MS: Final = 1000


class Machine(NamedTuple):
    """A machine that is laid out on disk."""

    name: str
    homes: Sequence[BrokerHome]
    #: where clients bootstrap
    address: str
    #: of the broker that may vote; it ends last
    voter: BrokerHome | None


def available_cores() -> int:
    """The cores that this process may use, by its affinity and by the quota of its control group.

    A quota of one and a half cores is one: a broker with half a core would be slower than the others.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = cpu_limit()
    return cores if limit is None else max(1, min(cores, int(limit)))


def first_id(number: int) -> int:
    """The id of a machine's first broker."""
    return (number - 1) * MOST_CORES + 1


def lay_out(configs: Mapping[str, str], cores: int, topics: Sequence[Any] = ()) -> Machine:
    """Write the folders of a machine's brokers; `configs` are those of a single broker.

    Placeholders stay placeholders in the files, except in the configs that differ between brokers.
    Raises a Failure if the directory belongs to another machine, or has brokers that would not be started.
    """
    plain = resolved_configs(configs)
    configs = {**configs, **{key: plain[key] for key in _LAID_OUT & plain.keys()}}
    if "penstock.memory" in configs:
        misused("--cores needs data on disk, because a broker may vote: leave --memory out")
    number = int(configs.get("node.id", configs.get("broker.id", "1")))
    if number < 1:
        misused("with --cores, --id is the number of the machine, from 1")
    directories = [Path(each.strip()) for each in configs.get("log.dirs", "penstock-data").split(",")]
    stored = _stored(directories[0])
    _check_same(directories[0], stored, number, cores)
    if not {_VOTERS, _CLUSTER_ID} & configs.keys() and "cluster_id" not in stored:
        _check_no_data(directories)
    name = configs.get("penstock.machine") or stored.get("name") or socket.gethostname()
    client, *_ = _listeners(configs["listeners"])
    base = _base_port(client, cores, stored)
    homes = [BrokerHome(directories[0], first_id(number) + core) for core in range(cores)]
    shared = _shared_configs(configs, number, base, name, stored)
    _check_ports(shared, base, cores)
    own = [_own_configs(shared, home, core, base, directories) for core, home in enumerate(homes)]
    for each in own:
        # The constructor refuses what no broker would start with.
        _check_internal(configs, BrokerConfig(resolved_configs(each)), cores)
    _store(directories[0], {"number": number, "name": name, "port": base, **_id_of(shared)}, stored)
    for home, each in zip(homes, own, strict=True):
        home.write(each, topics)
    votes = "controller" in own[0].get("process.roles", "broker,controller")
    advertised, *_ = _listeners(shared.get("advertised.listeners", shared["listeners"]))
    host = advertised.host if advertised.host not in _ANY_HOST else "127.0.0.1"
    return Machine(name, homes, f"{host}:{base}", homes[0] if votes else None)


class _Address(NamedTuple):
    name: str
    host: str
    port: int

    def moved(self, by: int) -> str:
        return f"{self.name}://{self.host}:{self.port + by}"


def _listeners(text: str) -> list[_Address]:
    found = []
    for each in text.split(","):
        match = _ADDRESS.fullmatch(each.strip())
        if match is None:
            misused(f"listeners has {each.strip()!r}: write NAME://HOST:PORT")
        found.append(_Address(match["name"], match["host"], int(match["port"])))
    return found


def _base_port(client: _Address, cores: int, stored: Mapping[str, Any]) -> int:
    """The common port: that of the configs. For port 0, the port of the last start, or a free one."""
    host = client.host.strip("[]")
    if client.port:
        return client.port
    known = stored.get("port")
    if known and is_free_block(host, known, cores + 1):
        return int(known)
    return free_block(host, cores + 1)


def _shared_configs(
    configs: Mapping[str, str], number: int, base: int, name: str, stored: Mapping[str, Any]
) -> dict[str, str]:
    """The configs that all brokers of the machine have; listeners are those of the common port."""
    shared = {key: value for key, value in configs.items() if key not in ("broker.id", "log.dir")}
    names = _internal_names(configs)
    listeners = [
        each._replace(port=each.port or base + _INTERNAL_OFFSET * (each.name in names))
        for each in _listeners(configs["listeners"])
    ]
    if not any(each.name in names for each in listeners):
        host = listeners[0].host
        if _VOTERS not in configs and not is_loopback(host.strip("[]")):
            host = "127.0.0.1"  # all brokers are on this machine
        listeners.append(_Address(names[0], host, base + _INTERNAL_OFFSET))
    shared["listeners"] = ",".join(each.moved(0) for each in listeners)
    if _VOTERS in configs:
        voters = _voters(configs[_VOTERS])
    else:
        internal = next(each for each in listeners if each.name in names)
        if internal.host in _ANY_HOST:
            internal = internal._replace(host="127.0.0.1")
        voters = [f"{first_id(number)}@{internal.host}:{internal.port + 1}"]
        known = stored.get("cluster_id") or format_topic_id(random.randbytes(16))
        shared.setdefault(_CLUSTER_ID, known)
    shared[_VOTERS] = ",".join(voters)
    shared["penstock.machine"] = name
    shared["penstock.bootstrap.port"] = str(base)
    shared.setdefault("broker.heartbeat.interval.ms", str(_HEARTBEAT_MS))
    for key, value in replication_defaults(len(voters)).items():
        shared.setdefault(key, value)
    return shared


def _internal_names(configs: Mapping[str, str]) -> list[str]:
    """The names that the listener between brokers may have."""
    return [name.strip().upper() for name in configs.get("controller.listener.names", INTERNAL).split(",")]


def _check_internal(configs: Mapping[str, str], config: BrokerConfig, cores: int) -> None:
    """Refuse a listener between brokers that the layout has added, if it is open to other machines.

    Also if the authorizer would refuse what brokers send there: they would wait for each other for ever.
    """
    internal = config.internal_endpoint
    if internal is None or any(each.name == internal.name for each in _listeners(configs["listeners"])):
        return
    where = f"{internal.name}://{internal.host or '*'}:{internal.port}"
    remedy = (
        f"add {internal.name}://HOST:PORT to listeners and its protocol to listener.security.protocol.map "
        f"(docs/cores.md)"
    )
    if where in config.insecure_listeners() and not config.penstock_insecure_listeners_allow:
        misused(
            f"{where}, the listener between brokers that --cores adds, would serve any machine, without "
            f"encryption or authentication: {remedy}, or accept the risk with --allow-insecure"
        )
    is_alone = cores == 1 and _VOTERS not in configs
    if internal.protocol == "PLAINTEXT" and not is_alone and not _is_open(config):
        misused(
            f"{where}, the listener between brokers that --cores adds, has no authentication, so that the "
            f"authorizer would refuse the brokers: {remedy}, and the brokers to super.users"
        )


def _is_open(config: BrokerConfig) -> bool:
    """Whether a broker may act as one without authentication."""
    users = [user.strip() for user in config.super_users.split(";")]
    is_allowed = str(ANONYMOUS) in users or config.allow_everyone_if_no_acl_found
    return not config.authorizer_class_name or is_allowed


def _check_ports(shared: Mapping[str, str], base: int, cores: int) -> None:
    """Refuse listeners whose ports would meet: each has a port for every broker."""
    listeners = _listeners(shared["listeners"])
    taken = [(listeners[0].host, base, "the common port")]
    for name, host, first in listeners:
        for port in range(first + 1, first + 1 + cores):
            if port > _HIGHEST_PORT:
                misused(f"listener {name} would need port {port}, which does not exist: choose a lower port")
            for other, known, owner in taken:
                if known == port and (host == other or {host, other} & _ANY_HOST):
                    misused(
                        f"listener {name} and {owner} would both have port {port}, because every broker has "
                        f"its own: choose ports that are more than {cores} apart"
                    )
        taken += [(host, port, f"listener {name}") for port in range(first + 1, first + 1 + cores)]


def _voters(text: str) -> list[str]:
    """The voters of the quorum, given the machines: the first broker of each, five at most."""
    found = []
    for each in text.split(","):
        match = _VOTER.fullmatch(each.strip())
        if match is None:
            misused(f"{_VOTERS} has {each.strip()!r}: write NUMBER@HOST:PORT, with the number of the machine")
        found.append(f"{first_id(int(match['number']))}@{match['host']}:{int(match['port']) + 1}")
    return found[:MAX_VOTERS]


def _own_configs(
    shared: Mapping[str, str], home: BrokerHome, core: int, base: int, directories: Sequence[Path]
) -> dict[str, str]:
    voters = [each.partition("@")[0] for each in shared[_VOTERS].split(",")]
    own = {
        **shared,
        "node.id": str(home.id),
        "log.dirs": ",".join(str((path / home.path.name / "data").absolute()) for path in directories),
        "process.roles": "broker,controller" if str(home.id) in voters else "broker",
    }
    for key in ("listeners", "advertised.listeners"):
        if key in shared:
            own[key] = ",".join(each.moved(core + 1) for each in _listeners(shared[key]))
    return own


def _id_of(shared: Mapping[str, str]) -> dict[str, str]:
    known = shared.get(_CLUSTER_ID)
    return {} if known is None else {"cluster_id": known}


def _check_same(directory: Path, stored: Mapping[str, Any], number: int, cores: int) -> None:
    if stored.get("number", number) != number:
        misused(f"{directory} belongs to machine {stored['number']}, not {number}: choose another --data")
    if not 1 <= cores <= MOST_CORES:
        misused(f"--cores {cores} is not in the range from 1 to {MOST_CORES}")
    if (directory / "meta.json").exists():
        misused(f"{directory} has the data of a single broker: choose another --data for --cores")
    left_out = [
        path.name
        for path in sorted(directory.glob("broker-*"))
        if path.name.partition("-")[2].isdigit()
        and int(path.name.partition("-")[2]) >= first_id(number) + cores
        and (path / "data").is_dir()
    ]
    if left_out:
        raise Failure(
            f"{directory} has {', '.join(left_out)}, which --cores {cores} would not start: start it with "
            "more "
            f"cores, empty it with `penstock broker drain`, and move its folder away"
        )


def _check_no_data(directories: Sequence[Path]) -> None:
    """Raise a Failure if there is data: a new cluster id beside it would make the brokers refuse it."""
    for directory in directories:
        for path in sorted(directory.glob("broker-*/data/meta.json")):
            file = directories[0] / _FILE
            raise Failure(
                f"{file} has no cluster_id, although {path.parent} has data: restore the file, or add "
                f"`cluster_id: ID` with the id in {path}"
            )


def _stored(directory: Path) -> dict[str, Any]:
    import yaml

    try:
        content = yaml.safe_load((directory / _FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise Failure(f"{directory / _FILE} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise Failure(
            f"{directory / _FILE} is empty or damaged: restore it, or delete it if the machine has no data"
        )
    return content


def _store(directory: Path, content: Mapping[str, Any], stored: Mapping[str, Any]) -> None:
    """Write the file of the machine if it has changed; after a failure the old content is there."""
    import yaml

    if content == stored:
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(dict(content), sort_keys=False)
        write_private(directory / _FILE, "# Written by `penstock up --cores`.\n" + text)
    except OSError as error:
        remedy = "fix that first" if stored else "choose another --data"
        raise Failure(f"cannot write to {directory}: {error.strerror}: {remedy}") from error
