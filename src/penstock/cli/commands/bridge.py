"""`penstock bridge nats|amqp|sqs|count`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.bridges.options import Copying, key_option, refuse_secret_url
from penstock.cli.completion import topic_names
from penstock.cli.failure import misused
from penstock.cli.help_text import examples
from penstock.cli.option_groups import Connection, grouped
from penstock.cli.options import AsJson
from penstock.cli.requirements import require_extra

app = typer.Typer(
    help="Copy messages between another system and a topic, at least once, until Ctrl-C.",
    no_args_is_help=True,
)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=topic_names)]


@app.command()
@examples("penstock bridge nats ORDERS orders")
@grouped
def nats(
    stream: Annotated[str, typer.Argument(metavar="STREAM")],
    topic: Topic,
    server: Annotated[
        str,
        typer.Option(
            "--server",
            envvar="NATS_URL",
            help="URLs of NATS, with commas between them; in NATS_URL, if they have a secret.",
        ),
    ] = "nats://127.0.0.1:4222",
    creds: Annotated[
        Path | None, typer.Option("--creds", metavar="FILE", help="File with the credentials of a user.")
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option("--subject", help="Copy only these subjects; with --reverse the one to publish to."),
    ] = None,
    durable: Annotated[
        str, typer.Option("--durable", help="The durable consumer, which is created if there is none.")
    ] = "penstock-bridge",
    key: Annotated[
        str, typer.Option("--key", help="Key of the records: subject, none, or header:NAME.")
    ] = "subject",
    *,
    copying: Copying,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Copy a JetStream stream to a topic, or back.

    A message is acknowledged in NATS once all in-sync replicas of the topic have it. The header
    penstock-bridge-id is the de-duplication key.
    """
    require_extra("nats", "bridge")
    from penstock.bridge.nats_streams import LOGGERS, NatsServers, NatsSource, NatsTarget
    from penstock.cli.bridges.running import Ends, run_bridge

    refuse_secret_url("server", server, "NATS_URL", is_token=True)
    if copying.reverse and (subject is None or "*" in subject or ">" in subject):
        misused("--reverse needs --subject: the subject to publish to, without wildcards")
    servers = NatsServers(server, None if creds is None else str(creds))
    rule = key_option(key, "subject")
    ends = Ends(
        lambda: NatsSource(servers, stream, durable, subject, rule, copying.in_flight),
        lambda: NatsTarget(servers, stream, subject or ""),
        LOGGERS,
    )
    run_bridge(connection, topic, ends, copying, as_json=as_json)


@app.command()
@examples("penstock bridge amqp orders orders")
@grouped
def amqp(
    queue: Annotated[str, typer.Argument(metavar="QUEUE")],
    topic: Topic,
    url: Annotated[
        str,
        typer.Option(
            "--url", envvar="AMQP_URL", help="URL of the broker; in AMQP_URL, if it has a password."
        ),
    ] = "amqp://guest:guest@127.0.0.1:5672/",
    key: Annotated[
        str, typer.Option("--key", help="Key of the records: none, routing-key, or header:NAME.")
    ] = "none",
    *,
    copying: Copying,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Copy a queue of RabbitMQ, or of another broker for AMQP 0-9-1, to a topic, or back.

    A message is acknowledged in the queue once all in-sync replicas of the topic have it. The header
    penstock-bridge-id is the message_id of the publisher.
    """
    require_extra("aio_pika", "bridge")
    from penstock.bridge.amqp_queues import LOGGERS, AmqpSource, AmqpTarget
    from penstock.cli.bridges.running import Ends, run_bridge

    refuse_secret_url("url", url, "AMQP_URL")
    if not url.startswith(("amqp://", "amqps://")):
        misused("--url must begin with amqp:// or amqps://")
    rule = key_option(key, "routing-key")
    ends = Ends(
        lambda: AmqpSource(url, queue, rule, copying.in_flight),
        lambda: AmqpTarget(url, queue),
        LOGGERS,
        queue,
    )
    run_bridge(connection, topic, ends, copying, as_json=as_json)


@app.command()
@examples("penstock bridge sqs orders orders")
@grouped
def sqs(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="URL or name of the queue.")],
    topic: Topic,
    endpoint_url: Annotated[
        str | None,
        typer.Option(
            "--endpoint-url", envvar="AWS_ENDPOINT_URL", help="Address of SQS. [default: AWS's own]"
        ),
    ] = None,
    region: Annotated[
        str | None, typer.Option("--region", envvar="AWS_REGION", help="Region of the queue.")
    ] = None,
    key: Annotated[
        str, typer.Option("--key", help="Key of the records: group (of FIFO queues), none, or header:NAME.")
    ] = "group",
    unwrap_sns: Annotated[
        bool, typer.Option("--unwrap-sns", help="Copy the message inside each notification of SNS.")
    ] = False,
    *,
    copying: Copying,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Copy a queue of SQS to a topic, or back. Credentials come from the environment, as for AWS's tools.

    A message is deleted in SQS once all in-sync replicas of the topic have it. The header
    penstock-bridge-id is the MessageId of SQS, or of SNS.
    """
    require_extra("boto3", "bridge")
    from penstock.bridge.sqs_queues import LOGGERS, SqsQueue, SqsSource, SqsTarget
    from penstock.cli.bridges.running import Ends, run_bridge

    where = SqsQueue(queue, endpoint_url, region)
    rule = key_option(key, "group")
    ends = Ends(lambda: SqsSource(where, rule, unwrap_sns), lambda: SqsTarget(where), LOGGERS, where.name)
    run_bridge(connection, topic, ends, copying, as_json=as_json)


@app.command()
@examples("penstock bridge count orders")
@grouped
def count(topic: Topic, *, connection: Connection, as_json: AsJson = False) -> None:
    """Count the copies in a topic by source: all, different ids, duplicates. For reconciliation."""
    from penstock.cli.bridges.running import count_copies
    from penstock.cli.output import print_json, print_rows

    tally = count_copies(connection, topic)
    if as_json:
        print_json({"topic": topic, "records": tally.records, "sources": tally.rows()})
        return
    print_rows(
        tally.rows(),
        as_json=False,
        columns=("source", "copies", "distinct", "duplicates", "without_id"),
        empty=f"no copies among the {tally.records} records of {topic}",
    )
