"""`python -m differential.negative`: runs the matrix on both brokers; exits with 1 if an outcome differs."""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path

from differential.negative.brokers import kafka, penstock_settings
from differential.negative.cells import Ports, cells
from differential.negative.credentials import HOST, Credentials
from differential.negative.outcomes import DEVIATIONS, PAGE, record, rendered
from lab.stall_meter import WAIT_MS, StallMeter, machine_scale, thread_of
from penstock.testing import broker


def run(credentials: Credentials, ports: Ports) -> dict[str, str]:
    """The outcome of every cell by its name."""
    return {cell.name: cell.probe(ports)[0] for cell in cells(credentials)}


def run_metered(
    credentials: Credentials, ports: Ports, honest: StallMeter
) -> tuple[dict[str, str], dict[str, float]]:
    """As `run`, and the cells that make an honest client wait for the event loop, with milliseconds."""
    found: dict[str, str] = {}
    stalls: dict[str, float] = {}
    scale = machine_scale()
    for cell in cells(credentials):
        honest.window()
        found[cell.name] = cell.probe(ports)[0]
        if honest.window().loop_ms > WAIT_MS * scale:
            waited = honest.stalls(partial(cell.probe, ports), scale)
            if waited:
                stalls[cell.name] = waited
    return found, stalls


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="penstock-matrix-") as folder:
        credentials = Credentials(Path(folder))
        # The honest client of the stall meter needs no credentials.
        listeners = {
            "listeners": f"PLAIN://{HOST}:0,TLS://{HOST}:0,SASL://{HOST}:0",
            "listener.security.protocol.map": "PLAIN:PLAINTEXT,TLS:SSL,SASL:SASL_PLAINTEXT",
        }
        with broker(config={**listeners, **penstock_settings(credentials)}) as running:
            found = {listener.name: listener.port for listener in running.broker.stages.listening.listeners}
            with StallMeter(found["PLAIN"], thread_of()) as honest:
                ports = Ports(found["TLS"], found["SASL"])
                ours, stalls = run_metered(credentials, ports, honest)
        with kafka(credentials) as ports:
            theirs = run(credentials, ports)
    record(theirs)
    PAGE.write_text(rendered(ours, theirs), encoding="utf-8")
    failed = 0
    for name, outcome in ours.items():
        wrong = name.split("/", 2)[2]
        if outcome != theirs[name]:
            allowed = DEVIATIONS.get(name.partition("/")[2], DEVIATIONS.get(wrong))
            failed += allowed is None
            print(f"{name}: {outcome}, Kafka {theirs[name]}" + (f" ({allowed})" if allowed else " DIFFERS"))
    for name, waited in stalls.items():
        print(f"{name}: an honest client waited for {waited:.0f} ms of the event loop")
    print(f"{len(ours)} cells, {failed} differ, {len(stalls)} hold the event loop")
    return min(failed + len(stalls), 1)


if __name__ == "__main__":
    sys.exit(main())
