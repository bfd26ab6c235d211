"""`penstock telemetry`: the pipeline, its API and reports, the demo, and the collectors."""

from __future__ import annotations

import typer

from penstock.cli.telemetry import collect, demo, prepare, recompute, run, serve

app = typer.Typer(
    help="GPU telemetry: collectors, the Spark pipeline, its API and reports, and a demo.",
    no_args_is_help=True,
)
for _command in (
    run.run,
    run.backfill,
    recompute.recompute,
    serve.serve,
    serve.report,
    serve.now,
    demo.demo,
    prepare.prepare,
    collect.simulate,
    collect.replay,
    collect.scrape,
    collect.nvml,
    collect.host,
):
    app.command()(_command)
