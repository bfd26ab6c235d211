"""`penstock cert renew`: the certificates of a cluster on this machine."""

from __future__ import annotations

from pathlib import Path

import typer

from penstock.cli.failure import Failure
from penstock.cli.help_text import examples
from penstock.cli.options import AsJson, DataDirectory

app = typer.Typer(help="Renew the certificates of a secured cluster.", no_args_is_help=True)


@app.callback()
def cert() -> None:
    """Renew the certificates of a secured cluster."""


@app.command()
@examples("penstock cert renew --data ./cluster")
def renew(data: DataDirectory = Path("penstock-cluster"), as_json: AsJson = False) -> None:
    """Issue new certificates for all brokers. Running brokers load them without a restart."""
    from penstock.cli.cluster.broker_home import homes_in
    from penstock.cli.cluster.security import ClusterSecurity
    from penstock.cli.outcomes import print_outcomes

    security = ClusterSecurity(data)
    homes = homes_in(data)
    if not homes or not security.exists:
        raise Failure(f"{data} has no secured cluster: create one with `penstock cluster start --secure`")
    for home in homes:
        security.issue([home], home.address.rpartition(":")[0].strip("[]"))
    print_outcomes("broker", {str(home.id): "renewed" for home in homes}, as_json)
