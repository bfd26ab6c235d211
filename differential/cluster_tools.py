"""Runs Kafka's tools for elections, quorums and metadata against clusters of Penstock and of Apache Kafka.

    make cluster-tools     # or: python -m differential.cluster_tools [--against penstock] [WORD …]

Their output is compared. Both clusters have three nodes and a dynamic quorum (kraft.version 1), so that
voters can be removed and added.
"""

from __future__ import annotations

import base64
import difflib
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from lab.apache_kafka import CLUSTER_ID, COMBINED, JVM, kafka_classpath, tool
from lab.cluster import Cluster, cluster_of, penstock_cluster
from lab.home import command
from lab.server import Server
from tools.arguments import Arguments


def _uuid(text: str) -> str:
    """A UUID as Kafka writes it."""
    return base64.urlsafe_b64encode(text.encode()[:16]).decode().rstrip("=")


_TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
_ELECTION: Final = "org.apache.kafka.tools.LeaderElectionCommand"
_QUORUM: Final = "org.apache.kafka.tools.MetadataQuorumCommand"
_METRICS: Final = "org.apache.kafka.tools.ClientMetricsCommand"
_FEATURES: Final = "org.apache.kafka.tools.FeatureCommand"
_TIMEOUT_S: Final = 180.0
_TRIES: Final = 5
_SETTINGS: Final = {"auto.leader.rebalance.enable": "false"}
#: the directory id of the metadata log of each of Kafka's nodes
_DIRECTORIES: Final = {node: _uuid(f"penstock-lab-di{node}") for node in (1, 2, 3)}
_UNKNOWN_DIRECTORY: Final = _uuid("penstock-lab-none")


class Side(NamedTuple):
    """One cluster, and a folder for files of its tools."""

    cluster: Cluster
    folder: Path


class Step(NamedTuple):
    name: str
    run: Callable[[Side], str]


def _run(side: Side, main_class: str, *arguments: str) -> str:
    """The output of a tool, without what differs between two runs, and sorted."""
    # A broker that every step leaves alone.
    where = ["--bootstrap-server", side.cluster.brokers[0].bootstrap]
    done = subprocess.run(
        [*tool(main_class), *where, *arguments],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if not line.startswith("[")]
    lines += [line for line in done.stderr.splitlines() if re.search(r"(Exception|Error|Failed)", line)]
    return "\n".join([*lines, f"exit {done.returncode}"])


def settled(text: str) -> str:
    """Replace what differs between two runs, and sort the lines."""
    text = re.sub(r"(localhost|127\.0\.0\.1):\d+", "HOST", text)
    text = re.sub(r"TopicId: \S+", "TopicId: ID", text)
    text = re.sub(r"(?<=directoryId=)[\w-]{22}|(?<=directory id )[\w-]{22}", "ID", text)
    text = re.sub(r"\bjava\.util\.concurrent\.\w+Exception: ", "", text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return "\n".join(sorted(line for line in lines if line and not line.startswith("at ")))


def _without_reasons(text: str) -> str:
    """The errors alone: both brokers explain them in their own words."""
    return settled(re.sub(r"(errors\.\w+Exception): .*", r"\1", text))


def _change_voters(side: Side, *arguments: str) -> str:
    """The output of a change of the voters; after one, a new leader may have to be elected first."""
    for _ in range(_TRIES):
        text = _run(side, _QUORUM, *arguments)
        if "NotLeaderOrFollower" not in text:
            break
    return _without_reasons(text)


def _tool(main_class: str, *arguments: str) -> Callable[[Side], str]:
    return lambda side: settled(_run(side, main_class, *arguments))


def _quorum_status(side: Side) -> str:
    """The fields, and who votes: offsets and epochs differ between two runs, and so may the leader."""
    text = _run(side, _QUORUM, "describe", "--status")
    text = re.sub(r"(?m)^(LeaderId|LeaderEpoch|HighWatermark|\w+Lag\w*):.*$", r"\1: N", text)
    text = re.sub(r"ClusterId: .*", "ClusterId: ID", re.sub(r"(INTERNAL|CONTROLLER)://", "", text))
    return settled(re.sub(r'("directoryId": ")[^"]*', r"\1ID", text))


def _replication(side: Side) -> dict[str, dict[str, str]]:
    """The rows of the quorum's description by node."""
    head, *rows = [
        line.split() for line in _run(side, _QUORUM, "describe", "--replication").splitlines() if line.strip()
    ]
    return {row[0]: dict(zip(head, row, strict=False)) for row in rows if len(row) >= len(head)}


def _roles(side: Side) -> str:
    """Each node with its role; a leader is a voter, too."""
    rows = _replication(side)
    return "\n".join(
        f"{node} {'Voter' if row['Status'] in ('Leader', 'Follower') else row['Status']}"
        for node, row in sorted(rows.items())
    )


def _remove(node: int, directory: str | None = None) -> Callable[[Side], str]:
    """Remove a voter, by default with the directory id that the quorum describes."""

    def run(side: Side) -> str:
        known = directory or _known_directory(side, node)
        named = ("--controller-id", str(node), "--controller-directory-id", known)
        return _change_voters(side, "remove-controller", *named)

    return run


def _known_directory(side: Side, node: int) -> str:
    """The directory id of a node, which is kept: the tool that adds it again needs it."""
    kept = side.folder / f"directory-{node}"
    if not kept.exists():
        kept.write_text(_replication(side)[str(node)]["DirectoryId"])
    return kept.read_text()


def _add(node: int) -> Callable[[Side], str]:
    """Add a voter: the tool takes it from the config and the metadata directory of the node."""

    def run(side: Side) -> str:
        home = side.folder / f"node-{node}"
        home.mkdir(exist_ok=True)
        known = _known_directory(side, node)
        made = f"version=1\nnode.id={node}\ndirectory.id={known}\ncluster.id={CLUSTER_ID}\n"
        (home / "meta.properties").write_text(made)
        internal = _properties(side.cluster.brokers[node - 1])["listeners"].partition(",")[2]
        address = internal.partition("://")[2]
        lines = {
            "process.roles": "controller",
            "node.id": str(node),
            "log.dirs": str(home),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{address}",
            "controller.quorum.bootstrap.servers": address,
        }
        config = home / "controller.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return _change_voters(side, "--command-config", str(config), "add-controller")

    return run


def _properties(server: Server) -> dict[str, str]:
    text = (server.log.parent / "server.properties").read_text()
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _restart_first(side: Side) -> str:
    """Leaders of the first broker move to others, and stay there until a tool elects others."""
    side.cluster.brokers[0].restart()
    side.cluster.wait_ready()
    return "restarted"


_PAGED: Final = ("--describe", "--partition-size-limit-per-response")
_ALL: Final = ("--metrics", "org.apache.kafka.producer.", "--interval", "5000")
STEPS: Final = (
    Step(
        "create a topic of 30 partitions",
        _tool(_TOPICS, "--create", "--topic", "wide", "--partitions", "30", "--replication-factor", "3"),
    ),
    Step(
        "create a topic of 3 partitions",
        _tool(
            _TOPICS, "--create", "--topic", "narrow", "--replica-assignment", "1:2:3,2:3:1,3:1:2,1:3:2,2:1:3"
        ),
    ),
    Step("describe a topic in pages of 7 partitions", _tool(_TOPICS, *_PAGED, "7", "--topic", "narrow")),
    Step("describe a topic in pages of one partition", _tool(_TOPICS, *_PAGED, "1", "--topic", "narrow")),
    Step(
        "count the partitions of all topics in pages of 4",
        lambda side: str(_run(side, _TOPICS, *_PAGED, "4").count("Partition: ")),
    ),
    Step("describe an unknown topic in pages", _tool(_TOPICS, *_PAGED, "4", "--topic", "missing")),
    Step(
        "elect preferred leaders where nothing has moved",
        _tool(_ELECTION, "--election-type", "preferred", "--topic", "narrow", "--partition", "0"),
    ),
    Step("restart the first broker", _restart_first),
    Step(
        "elect the preferred leader of a partition",
        _tool(_ELECTION, "--election-type", "preferred", "--topic", "narrow", "--partition", "0"),
    ),
    Step(
        "elect the preferred leader again",
        _tool(_ELECTION, "--election-type", "preferred", "--topic", "narrow", "--partition", "0"),
    ),
    Step(
        "elect all preferred leaders",
        lambda side: settled(
            _elected(_run(side, _ELECTION, "--election-type", "preferred", "--all-topic-partitions"))
        ),
    ),
    Step("describe the leaders", _tool(_TOPICS, "--describe", "--topic", "narrow")),
    Step(
        "elect an unclean leader where there is one",
        _tool(_ELECTION, "--election-type", "unclean", "--topic", "narrow", "--partition", "1"),
    ),
    Step(
        "elect the leader of an unknown partition",
        _tool(_ELECTION, "--election-type", "preferred", "--topic", "narrow", "--partition", "77"),
    ),
    Step(
        "elect the leader of an unknown topic",
        _tool(_ELECTION, "--election-type", "preferred", "--topic", "missing", "--partition", "0"),
    ),
    Step("subscribe to metrics", _tool(_METRICS, "--alter", "--name", "all", *_ALL)),
    Step(
        "subscribe to metrics of some clients",
        _tool(_METRICS, "--alter", "--name", "some", *_ALL, "--match", "client_id=a.*"),
    ),
    Step(
        "subscribe with an interval that is too short",
        _tool(_METRICS, "--alter", "--name", "fast", "--metrics", "*", "--interval", "5"),
    ),
    Step(
        "subscribe with an unknown selector",
        _tool(_METRICS, "--alter", "--name", "odd", *_ALL, "--match", "colour=red"),
    ),
    Step("list subscriptions", _tool(_METRICS, "--list")),
    Step("describe a subscription", _tool(_METRICS, "--describe", "--name", "some")),
    Step("describe an unknown subscription", _tool(_METRICS, "--describe", "--name", "missing")),
    Step("delete a subscription", _tool(_METRICS, "--delete", "--name", "some")),
    Step("delete an unknown subscription", _tool(_METRICS, "--delete", "--name", "missing")),
    Step("describe the quorum", _quorum_status),
    Step("describe the voters", _roles),
    Step("remove an unknown voter", _remove(9, _UNKNOWN_DIRECTORY)),
    Step("remove a voter with another directory", _remove(3, _UNKNOWN_DIRECTORY)),
    Step("add a voter that is one", _add(3)),
    Step("remove a voter", _remove(3)),
    Step("describe the remaining voters", _roles),
    Step("add it again", _add(3)),
    Step("describe all voters", _roles),
)


def _elected(text: str) -> str:
    """How the tool ended: which partitions had moved depends on the placement of a topic."""
    return "\n".join(re.sub(r"(completed for partitions|Valid replica).*", r"\1", text).splitlines())


def _dynamic_kafka(folder: Path, settings: Mapping[str, str]) -> Cluster:
    """A cluster of Apache Kafka whose voters are in its metadata, not in its configs."""
    return cluster_of(_dynamic_node, "CONTROLLER", folder, settings, 3)


def _dynamic_node(folder: Path, port: int, properties: Mapping[str, str]) -> Server:
    stated = {**COMBINED, "log.dirs": str(folder / "data"), **properties}
    voters = stated.pop("controller.quorum.voters").split(",")
    stated["controller.quorum.bootstrap.servers"] = ",".join(voter.partition("@")[2] for voter in voters)
    configuration = folder / "server.properties"
    configuration.write_text("".join(f"{key}={value}\n" for key, value in stated.items()))
    initial = ",".join(f"{voter}:{_DIRECTORIES[int(voter.partition('@')[0])]}" for voter in voters)
    format_it = [*tool("kafka.tools.StorageTool"), "format", "-t", CLUSTER_ID, "-c", str(configuration)]
    command([*format_it, "--initial-controllers", initial], folder)
    java = ["java", *JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", kafka_classpath()]
    return Server("kafka", port, [*java, "kafka.Kafka", str(configuration)], folder / "kafka.log")


@contextmanager
def _started(kind: str) -> Iterator[Side]:
    with TemporaryDirectory(prefix="cluster-tools-") as name:
        folder = Path(name)
        make = partial(_dynamic_kafka if kind == "kafka" else penstock_cluster, folder, _SETTINGS)
        cluster = make()
        cluster.start()
        try:
            yield Side(cluster, folder)
        finally:
            cluster.stop()


def main() -> int:
    parser = Arguments(prog="python -m differential.cluster_tools", description=__doc__)
    parser.add_argument("--against", choices=("kafka", "penstock"), default="kafka")
    parser.add_argument("--verbose", action="store_true", help="print the output of every step")
    parser.add_argument("only", nargs="*", help="steps with one of these words in their name")
    given = parser.parse_args()
    steps = [step for step in STEPS if not given.only or any(word in step.name for word in given.only)]
    # Ends the brokers, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    different = 0
    with _started("penstock") as ours, _started(given.against) as theirs, ThreadPoolExecutor(2) as both:
        for step in steps:
            found, expected = both.map(step.run, (ours, theirs))
            different += found != expected
            print(f"{'same' if found == expected else 'DIFFERENT':10} {step.name}", flush=True)
            if given.verbose:
                print("\n".join(f"    {line}" for line in found.splitlines()), flush=True)
            lines = difflib.unified_diff(
                expected.splitlines(), found.splitlines(), given.against, "penstock", lineterm=""
            )
            for line in lines:
                print(f"    {line}", flush=True)
    print(f"{len(steps)} steps, {different} different")
    return min(different, 1)


if __name__ == "__main__":
    sys.exit(main())
