"""`penstock quorum describe`."""

from __future__ import annotations

import typer

from penstock.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_TIMEOUT, AsJson, Bootstrap, ClusterIn, Timeout

app = typer.Typer(help="Look at the metadata quorum.", no_args_is_help=True)


@app.callback()
def quorum() -> None:
    """Look at the metadata quorum."""


@app.command()
def describe(
    data: ClusterIn = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Show who leads the metadata quorum, who votes, who follows, and how far behind each is."""
    from penstock.cli.broker_home import bootstrap_of
    from penstock.cli.direct import DirectLine
    from penstock.cli.output import print_json, print_rows
    from penstock.cli.overview import quorum_overview

    with DirectLine(bootstrap_of(data, bootstrap), timeout) as line:
        overview = quorum_overview(line)
    if as_json:
        print_json(overview)
        return
    leader = "none" if overview["leader"] is None else overview["leader"]
    print(f"leader {leader}  epoch {overview['epoch']}  high watermark {overview['high_watermark']}")
    rows = [
        {**replica, "role": "leader" if replica["node"] == overview["leader"] else role}
        for role in ("voter", "observer")
        for replica in overview[f"{role}s"]
    ]
    columns = ("node", "role", "end", "lag", "silent_ms", "directory_id")
    print_rows(rows, as_json=False, columns=columns, empty="nobody is in the quorum")
