"""Adds brokers to a cluster on this machine, and removes brokers once they have no replicas."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.cli.cluster.broker_home import BrokerHome, bootstrap_of, home_of, homes_in
from penstock.cli.cluster.draining import carry_out, check_evacuation, evacuate, kept_empty
from penstock.cli.cluster.listening import chosen_port, free_port, internal_port
from penstock.cli.cluster.moves import plan_moves, read_image
from penstock.cli.cluster.overview import quorum_overview
from penstock.cli.cluster.security import ClusterSecurity
from penstock.cli.cluster.starting import start_all, stop_again
from penstock.cli.direct import HELLO, DirectLine, refuse
from penstock.cli.failure import Failure, misused
from penstock.model.addresses import address_text, parse_address
from penstock.model.config import BrokerConfig
from penstock.model.config.layers import INTERNAL, MAX_VOTERS
from penstock.model.errors import ErrorCode
from penstock.model.ids import parse_topic_id
from penstock.security.mechanism_checks import check_mechanisms
from penstock.wire.apis.add_raft_voter import ADD_RAFT_VOTER, AddRaftVoterRequest
from penstock.wire.apis.api_versions import API_VERSIONS
from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from penstock.wire.apis.endpoints import Endpoint
from penstock.wire.apis.remove_raft_voter import REMOVE_RAFT_VOTER, RemoveRaftVoterRequest
from penstock.wire.apis.unregister_broker import UNREGISTER_BROKER, UnregisterBrokerRequest

__all__ = ["add_broker", "forget_broker", "remove_broker"]

_ANSWER_S: Final = 10.0
_PAUSE_S: Final = 0.1


def add_broker(
    directory: Path,
    number: int | None,
    port: int | None,
    rack: str | None,
    *,
    votes: bool,
    rebalance: bool,
    timeout_s: float,
) -> tuple[BrokerHome, int]:
    """Start another broker and move replicas to it; returns its folder and the number of moves."""
    where = bootstrap_of(directory, "")
    with DirectLine(where, _ANSWER_S) as line:
        own = _way_in(line, votes=votes)
    if rack:
        own["broker.rack"] = rack
    home = _new_home(directory, number, port, own, votes=votes)
    try:
        start_all([home], timeout_s)
    except KeyboardInterrupt:
        stop_again([home])
        # It may have been given partitions already.
        _set_aside(home)
        raise
    with DirectLine(where, _ANSWER_S) as line:
        if votes:
            _join_quorum(line, home)
        _await_news_of(line, home, timeout_s)
        moves = plan_moves(line) if rebalance else []
        carry_out(line, moves, timeout_s)
    return home, len(moves)


def remove_broker(directory: Path, number: int, timeout_s: float) -> tuple[int, Path]:
    """Move a broker's replicas away, stop and unregister it; returns the number of moves and its folder.

    It is unregistered only if it has no replicas then: partitions may have been created on it meanwhile.
    """
    home = home_of(directory, number)
    others = [other for other in homes_in(directory) if other.id != number and other.process() is not None]
    if not others:
        raise Failure(f"broker {number} is the last running broker: `penstock cluster stop` stops it")
    with DirectLine(",".join(other.address for other in others), _ANSWER_S) as line:
        quorum_overview(line)  # fails with the missing voters if nothing can be changed
        check_evacuation(line, [number], timeout_s)
        with kept_empty(line, number):
            moves = evacuate(line, [number], timeout_s)
            _leave_quorum(line, number)
            process = home.signal(signal.SIGTERM)
            if process is not None:
                home.await_end(process, timeout_s)
            _await_absence(line, home, timeout_s)
            # An earlier try may have got this far.
            if number in read_image(line).brokers:
                moves += evacuate(line, [number], timeout_s)
                _unregister(line, number)
    return moves, _set_aside(home)


def _set_aside(home: BrokerHome) -> Path:
    """Rename a broker's folder, with its data; returns the new path."""
    kept_at = home.path.with_name(f"removed-broker-{home.id}")
    while kept_at.exists():
        kept_at = kept_at.with_name(f"{kept_at.name}-before")
    os.rename(home.path, kept_at)
    return kept_at


def forget_broker(bootstrap: str, number: int, timeout_s: float) -> int:
    """Move the replicas of a lost broker to other brokers and unregister it; returns the number of moves."""
    with DirectLine(bootstrap, _ANSWER_S) as line:
        quorum_overview(line)  # fails with the missing voters if nothing can be changed
        broker = read_image(line).brokers.get(number)
        if broker is None:
            raise Failure(f"there is no broker {number}: `penstock cluster status` lists the brokers")
        if broker.active:
            raise Failure(f"broker {number} is up and would register again: stop it first")
        moves = evacuate(line, [number], timeout_s)
        _leave_quorum(line, number)
        moves += evacuate(line, [number], timeout_s)
        _unregister(line, number)
    return moves


def _way_in(line: DirectLine, *, votes: bool) -> dict[str, str]:
    """The cluster id and the current voters, for the config of a new broker.

    Why: the files of older brokers have the first voters, all of which may be gone.
    """
    voters = quorum_overview(line)["voters"]
    if votes and len(voters) >= MAX_VOTERS:
        raise Failure(
            f"the quorum has {len(voters)} voters, and more would only slow it down: leave --voter out, or "
            f"remove one first"
        )
    return {
        "controller.quorum.voters": ",".join(f"{voter['node']}@{voter['address']}" for voter in voters),
        "penstock.cluster.id": line.send(DESCRIBE_CLUSTER, DescribeClusterRequest()).cluster_id,
    }


def _new_home(
    directory: Path, number: int | None, port: int | None, own: Mapping[str, str], *, votes: bool
) -> BrokerHome:
    """Create a folder with the configs of the first broker."""
    homes = homes_in(directory)
    if number is None:
        number = max(home.id for home in homes) + 1
    elif any(home.id == number for home in homes):
        misused(f"{directory} has a broker {number} already: `penstock broker start {number}` starts it")
    host = homes[0].address.rpartition(":")[0]
    bare = host.strip("[]")
    taken = {parse_address(a)[1] for home in homes for a in (home.address, home.internal_address)}
    if port is None:
        highest = max(parse_address(home.address)[1] for home in homes)
        client_port = free_port(bare, highest + 1, taken)
    else:
        client_port = chosen_port(bare, port, taken)
    inner_port = internal_port(bare, client_port, taken)
    home = BrokerHome(directory, number)
    security = ClusterSecurity(directory)
    # A broker that is added has no relay.
    own_names = ("broker.rack", "advertised.listeners")
    common = {name: value for name, value in homes[0].configs.items() if name not in own_names}
    configs = {
        **common,
        "node.id": str(number),
        "listeners": f"{homes[0].client_listener}://{host}:{client_port},{INTERNAL}://{host}:{inner_port}",
        "log.dirs": str(home.data.absolute()),
        "process.roles": "broker,controller" if votes else "broker",
        **(security.configs_of(home) if security.exists else {}),
        **own,
    }
    check_mechanisms(BrokerConfig(configs))  # refuses what no broker would start with
    if security.exists:
        security.issue([home], bare)
    home.write(configs, homes[0].topics)
    return home


def _await_news_of(line: DirectLine, home: BrokerHome, timeout_s: float) -> None:
    """Wait until the bootstrap broker lists the new one as up. Why: an earlier plan would leave it empty."""
    deadline = time.monotonic() + timeout_s
    while (broker := read_image(line).brokers.get(home.id)) is None or not broker.active:
        if time.monotonic() > deadline:
            raise Failure(f"broker {home.id} is not up after {timeout_s:g} s: see {home.log_file}")
        time.sleep(_PAUSE_S)


def _await_absence(line: DirectLine, home: BrokerHome, timeout_s: float) -> None:
    """Wait until the broker has ended. Its folder must not be moved before, also if it was started by hand.

    A broker that has ended may count as up until its session expires.
    """
    deadline = time.monotonic() + timeout_s
    while (broker := read_image(line).brokers.get(home.id)) is not None and broker.active:
        ((host, port),) = broker.endpoints.values()
        address = address_text(host, port)
        if line.send_each([address], API_VERSIONS, HELLO)[address] is not None:
            raise Failure(
                f"broker {home.id} is still up, as a process that {home.pid_file} does not name: end it, "
                f"and repeat the command"
            )
        if time.monotonic() > deadline:
            raise Failure(
                f"broker {home.id} has ended, but counts as up after {timeout_s:g} s: repeat the command "
                f"when "
                f"`penstock cluster status` shows it as down"
            )
        time.sleep(_PAUSE_S)


def _join_quorum(line: DirectLine, home: BrokerHome) -> None:
    """Make a broker a voter once it follows the quorum."""
    host, port = parse_address(home.internal_address)
    for observer in quorum_overview(line)["observers"]:
        if observer["node"] == home.id:
            request = AddRaftVoterRequest(
                timeout_ms=int(_ANSWER_S * 1000),
                voter_id=home.id,
                voter_directory_id=parse_topic_id(observer["directory_id"]),
                listeners=[Endpoint(name=INTERNAL, host=host, port=port)],
            )
            deadline = time.monotonic() + _ANSWER_S
            response = line.send(ADD_RAFT_VOTER, request)
            # A broker that has just started may not have caught up yet.
            while response.error_code == ErrorCode.REQUEST_TIMED_OUT and time.monotonic() < deadline:
                time.sleep(_PAUSE_S)
                response = line.send(ADD_RAFT_VOTER, request)
            refuse(response.error_code, response.error_message, f"voter {home.id}")
            return
    raise Failure(
        f"broker {home.id} does not follow the quorum, so it cannot become a voter: see {home.log_file}"
    )


def _leave_quorum(line: DirectLine, number: int) -> None:
    for voter in quorum_overview(line)["voters"]:
        if voter["node"] == number:
            request = RemoveRaftVoterRequest(
                voter_id=number, voter_directory_id=parse_topic_id(voter["directory_id"])
            )
            response = line.send(REMOVE_RAFT_VOTER, request)
            refuse(response.error_code, response.error_message, f"voter {number}")


def _unregister(line: DirectLine, number: int) -> None:
    response = line.send(UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id=number))
    refuse(response.error_code, response.error_message, f"broker {number}")
