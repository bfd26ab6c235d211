"""`penstock topic create|list|describe|alter|delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.completion import topic_names
from penstock.cli.confirmation import Yes, confirm
from penstock.cli.failure import misused
from penstock.cli.help_text import examples
from penstock.cli.option_groups import Connection, grouped
from penstock.cli.options import AsJson, pairs

if TYPE_CHECKING:
    from penstock.cli.connection import Cluster

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

#: ids as Kafka's own tools and `topic.metadata` write them; librdkafka has the other alphabet
_URL_SAFE = str.maketrans("+/", "-_")
#: the timestamp of ListOffsets for the last offset in the archive of tiered storage
_LATEST_TIERED = -5
_EARLIEST_LOCAL = -4

NewNames = Annotated[list[str], typer.Argument(metavar="NAME")]
Names = Annotated[list[str], typer.Argument(metavar="NAME", autocompletion=topic_names)]
Configs = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic config; repeatable.")
]


@app.command()
@examples(
    "penstock topic create orders --partitions 6 --config retention.ms=86400000",
    "penstock topic create orders --if-not-exists",
)
@grouped
def create(
    names: NewNames,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=-1, help="-1 for the broker's default.")
    ] = -1,
    replication_factor: Annotated[int, typer.Option(min=-1, help="-1 for the broker's default.")] = -1,
    config: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic exists.")
    ] = False,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Validate only, create nothing.")
    ] = False,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Create topics."""
    from confluent_kafka.admin import NewTopic

    from penstock.cli.outcomes import await_outcomes, print_outcomes

    cluster = connection.cluster()
    configs = pairs(config or (), "--config")
    topics = [NewTopic(name, partitions, replication_factor, config=configs) for name in names]
    futures = cluster.admin.create_topics(
        topics, request_timeout=cluster.timeout_s, validate_only=validate_only
    )
    done = "valid" if validate_only else "created"
    tolerated = {"TOPIC_ALREADY_EXISTS": "exists"} if if_not_exists else {}
    print_outcomes("topic", await_outcomes(cluster, futures, done, tolerated), as_json)


@app.command("list")
@examples("penstock topic list", "penstock topic list --internal --json")
@grouped
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Also list internal topics.")] = False,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """List topics."""
    from penstock.cli.output import print_rows

    cluster = connection.cluster()
    topics = cluster.metadata(cluster.admin).topics
    rows = [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "replicas": max((len(p.replicas) for p in topic.partitions.values()), default=0),
        }
        for name, topic in sorted(topics.items())
        if internal or not name.startswith("__")
    ]
    print_rows(
        rows,
        as_json=as_json,
        columns=("topic", "partitions", "replicas"),
        empty="no topics: create one with `penstock topic create NAME`",
    )


@app.command()
@examples("penstock topic describe orders --live")
@grouped
def describe(
    names: Names,
    live: Annotated[
        bool, typer.Option("--live", help="Also show rates over a second, and the lag of groups.")
    ] = False,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Show ids, times and configs of topics, and the leaders, replicas and offsets of their partitions."""
    from penstock.cli.cluster.rates import add_rates
    from penstock.cli.outcomes import print_described

    topics = _described(connection.cluster(), names)
    _add_moves(connection, topics)
    _add_lag(connection, topics)
    _add_copies(connection, topics)
    if live:
        add_rates(connection, topics)
    print_described(topics, as_json, _print_topic)


@app.command()
@examples("penstock topic alter orders --partitions 12")
@grouped
def alter(
    name: Annotated[str, typer.Argument(metavar="NAME", autocompletion=topic_names)],
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="The new number of partitions.")
    ] = None,
    config: Configs = None,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Add partitions to a topic, or set its configs."""
    from confluent_kafka.admin import NewPartitions

    from penstock.cli.alteration import alter_configs, topic_resource
    from penstock.cli.outcomes import print_outcomes

    configs = pairs(config or (), "--config")
    if partitions is None and not configs:
        misused("nothing to alter: give --partitions or --config")
    cluster = connection.cluster()
    if partitions is not None:
        futures = cluster.admin.create_partitions(
            [NewPartitions(name, partitions)], request_timeout=cluster.timeout_s
        )
        cluster.wait(futures[name], name)
    if configs:
        alter_configs(cluster, topic_resource(name), configs)
    print_outcomes("topic", {name: "altered"}, as_json)


@app.command()
@examples(
    "penstock topic delete mistake                # asks on a terminal", "penstock topic delete mistake --yes"
)
@grouped
def delete(
    names: Names,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeed if the topic does not exist.")
    ] = False,
    yes: Yes = False,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Delete topics and all their data."""
    from penstock.cli.outcomes import await_outcomes, print_outcomes

    cluster = connection.cluster()
    what = f"topic {names[0]}" if len(names) == 1 else f"{len(names)} topics ({', '.join(names)})"
    confirm(f"Delete {what} with all messages", connection.bootstrap, yes)
    futures = cluster.admin.delete_topics(list(names), request_timeout=cluster.timeout_s)
    tolerated = {"UNKNOWN_TOPIC_OR_PART": "missing"} if if_exists else {}
    print_outcomes("topic", await_outcomes(cluster, futures, "deleted", tolerated), as_json)


def _described(cluster: Cluster, names: list[str]) -> list[dict[str, Any]]:
    from confluent_kafka import TopicCollection, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    from penstock.cli.alteration import config_entries, topic_resource
    from penstock.model.ids import TOPIC_CHANGED, TOPIC_CREATED

    admin = cluster.admin
    topics = []
    for name, future in admin.describe_topics(TopicCollection(names)).items():
        topic = cluster.wait(future, name)
        ids = [TopicPartition(name, partition.id) for partition in topic.partitions]
        starts = admin.list_offsets({tp: OffsetSpec.earliest() for tp in ids})
        ends = admin.list_offsets({tp: OffsetSpec.latest() for tp in ids})
        configs = config_entries(cluster, topic_resource(name))
        topics.append(
            {
                "topic": name,
                "id": str(topic.topic_id).translate(_URL_SAFE),
                "created": _time(configs, TOPIC_CREATED),
                "changed": _time(configs, TOPIC_CHANGED),
                "configs": {c["name"]: c["value"] for c in configs if c["source"] == "DYNAMIC_TOPIC_CONFIG"},
                "partitions": [
                    {
                        "partition": partition.id,
                        "leader": partition.leader.id if partition.leader is not None else None,
                        "replicas": [node.id for node in partition.replicas],
                        "isr": [node.id for node in partition.isr],
                        "start": cluster.wait(starts[tp]).offset,
                        "end": cluster.wait(ends[tp]).offset,
                    }
                    for partition, tp in zip(topic.partitions, ids, strict=True)
                ],
            }
        )
    return topics


def _add_moves(connection: Connection, topics: list[dict[str, Any]]) -> None:
    """Add the reassignments of partitions, if the user may list them."""
    from contextlib import suppress

    from penstock.cli.cluster.moves import ongoing_moves
    from penstock.cli.failure import Failure

    moves = {}
    with suppress(Failure), connection.direct() as line:
        moves = {(name, index): move for (name, index), move in ongoing_moves(line).items()}
    for topic in topics:
        for partition in topic["partitions"]:
            move = moves.get((topic["topic"], partition["partition"]))
            partition["moving"] = move and {
                "adding": move.adding_replicas,
                "removing": move.removing_replicas,
                "reason": move.reason or "requested",
            }


def _add_lag(connection: Connection, topics: list[dict[str, Any]]) -> None:
    """Add the size of each partition, and the lag of its followers by broker."""
    from penstock.cli.cluster.lag import PartitionLag, read_lags
    from penstock.model.addresses import address_text
    from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest

    with connection.direct() as line:
        brokers = line.send(DESCRIBE_CLUSTER, DescribeClusterRequest()).brokers
        addresses = {broker.broker_id: address_text(broker.host, broker.port) for broker in brokers}
        wanted = {t["topic"]: [p["partition"] for p in t["partitions"]] for t in topics}
        lags = read_lags(line, addresses, wanted)
    for topic in topics:
        for partition in topic["partitions"]:
            lag = lags.get((topic["topic"], partition["partition"]), PartitionLag())
            partition["size"] = lag.size
            partition["lag"] = lag.records
            partition["lag_s"] = lag.seconds


def _add_copies(connection: Connection, topics: list[dict[str, Any]]) -> None:
    """Add the end of what the archive of tiered storage has of each partition; None if it has nothing."""
    tiered = [topic for topic in topics if topic["configs"].get("remote.storage.enable") == "true"]
    if not tiered:
        return
    from penstock.cli.cluster.rates import listed_offsets
    from penstock.model.addresses import address_text
    from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest

    leaders = {(t["topic"], p["partition"]): p["leader"] for t in tiered for p in t["partitions"]}
    with connection.direct() as line:
        brokers = line.send(DESCRIBE_CLUSTER, DescribeClusterRequest()).brokers
        addresses = {broker.broker_id: address_text(broker.host, broker.port) for broker in brokers}
        last = listed_offsets(line, addresses, leaders, _LATEST_TIERED)
        local = listed_offsets(line, addresses, leaders, _EARLIEST_LOCAL)
    for topic in tiered:
        for partition in topic["partitions"]:
            key = (topic["topic"], partition["partition"])
            offset = last.get(key, -1)
            partition["copied"] = None if offset < 0 else offset + 1
            partition["local_start"] = local.get(key)


def _time(configs: list[dict[str, Any]], name: str) -> str | None:
    """A time of a topic as ISO 8601; None if the cluster does not store it."""
    from datetime import UTC, datetime

    for config in configs:
        if config["name"] == name:
            time = datetime.fromtimestamp(int(config["value"]) / 1000, UTC)
            return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return None


def _print_topic(topic: dict[str, Any]) -> None:
    from penstock.cli.output import print_rows

    configs = " ".join(f"{name}={value}" for name, value in topic["configs"].items())
    print(f"{topic['topic']}  id {topic['id']}  {configs or 'default configs'}")
    if topic["created"] or topic["changed"]:
        print(f"created {topic['created'] or 'unknown'}  changed {topic['changed'] or 'unknown'}")
    columns: tuple[str, ...] = (
        "partition",
        "leader",
        "replicas",
        "isr",
        "start",
        "end",
        "size",
        "lag",
        "lag_s",
    )
    if any("copied" in partition for partition in topic["partitions"]):
        columns += ("copied", "local_start")
    rows = [
        {**p, "lag": max(p["lag"].values(), default=0), "lag_s": max(p["lag_s"].values(), default=0)}
        for p in topic["partitions"]
    ]
    print_rows(rows, as_json=False, columns=columns, empty="no partitions")
    if "groups" in topic:
        print(f"{topic['records_per_s']:,} records/s  {topic['bytes_per_s']:,} bytes/s")
        print_rows(topic["groups"], as_json=False, columns=("group", "lag", "lag_s"), empty="no groups")
    for partition in topic["partitions"]:
        if move := partition["moving"]:
            adding, removing = (", ".join(map(str, move[key])) for key in ("adding", "removing"))
            places = f"to {adding or 'no other'}" + (f", from {removing}" if removing else "")
            print(f"partition {partition['partition']} moves {places}: {move['reason']}")
