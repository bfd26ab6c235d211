"""`penstock restore`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.archives import Address, StoreConfig, in_store, split_moment
from penstock.cli.failure import misused
from penstock.cli.help_text import examples
from penstock.cli.options import AsJson, addresses
from penstock.cli.output import print_json_line
from penstock.cli.requirements import require_extra

if TYPE_CHECKING:
    from penstock.backup.restoring import Restored
    from penstock.ports import ObjectStore


@examples(
    "penstock restore ./archive@2026-11-17T12:00 --data ./restored",
    "penstock restore ./archive --bootstrap 127.0.0.1:9092 --topic orders=orders-before",
)
def restore(
    archive: Address,
    data: Annotated[
        Path | None, typer.Option("--data", "-d", metavar="DIR", help="A new data directory.")
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap", "-b", parser=addresses, metavar="HOST:PORT", help="A running Penstock cluster."
        ),
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", metavar="TOPIC[=NEW]", help="Only these topics, in a cluster also renamed."
        ),
    ] = None,
    groups: Annotated[
        list[str] | None,
        typer.Option(
            "--group", "-g", metavar="GROUP[=NEW]", help="Into a cluster: only these groups, also renamed."
        ),
    ] = None,
    rights: Annotated[
        bool, typer.Option("--rights", help="Into a cluster: also set the ACLs and client quotas of the cut.")
    ] = False,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            min=1,
            metavar="N",
            help="Into a cluster: replicas of each partition; by default as in the source.",
        ),
    ] = None,
    store_config: StoreConfig = None,
    as_json: AsJson = False,
) -> None:
    """Restore a cut into the data directory of a new cluster, or topics of it into a running one.

    ARCHIVE@TIME restores the newest cut at or before that time; without a time, the newest one. Offsets and
    timestamps are those of the source, groups go on where they were, open transactions are aborted.
    `penstock up --data DIR` serves a data directory, under a new cluster id. In a running cluster, topics of
    these names must not exist yet.
    """
    # Longer than other functions because its parameters are the options of the command.
    if (data is None) == (bootstrap is None):
        misused("name either --data, a new data directory, or --bootstrap, a running cluster")
    if data is not None and (groups or rights or replication_factor):
        misused("--group, --rights and --replication-factor are for a running cluster (--bootstrap)")
    require_extra("obstore", "archive")
    address, moment_ms = split_moment(archive)

    async def work(store: ObjectStore) -> tuple[int, Restored]:
        from penstock.archive.objects import read_root
        from penstock.archive.sweeping import find_cut
        from penstock.backup.restoring import chosen_topics, restore_to_directory

        await read_root(store)
        _, cut = await find_cut(store, moment_ms)
        if bootstrap is not None:
            from penstock.backup.restored_groups import chosen_targets
            from penstock.backup.restoring_running import restore_to_cluster
            from penstock.backup.source import Cluster
            from penstock.broker.base.system_ports import SystemRng
            from penstock.cli.client_config import client_security

            targets = chosen_targets(cut, topics or ())
            client = Cluster(bootstrap, SystemRng(), client_security())
            try:
                return cut.time_ms, await restore_to_cluster(
                    store,
                    cut,
                    targets,
                    client,
                    groups or (),
                    rights=rights,
                    replication_factor=replication_factor,
                )
            finally:
                client.close()
        assert data is not None
        chosen = chosen_topics(cut, topics or ())
        return cut.time_ms, await restore_to_directory(store, cut, chosen, data.absolute(), {})

    time_ms, result = in_store(address, store_config, work)
    for each in result.refused:
        print(f"penstock: not restored: {each}", file=sys.stderr)
    if as_json:
        print_json_line({"time_ms": time_ms, **result._asdict()})
    else:
        what = (
            f"restored {result.topics} topics, {result.partitions} partitions, {result.log_bytes} bytes, "
            f"{result.groups} groups, {result.acls} ACLs and {result.quotas} quotas into"
        )
        print(
            f"{what} {bootstrap}"
            if data is None
            else f"{what} {data}: start it with `penstock up --data {data}`"
        )
