"""`python -m differential.negative`: runs the matrix on both brokers; exits with 1 if an outcome differs."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from differential.negative.brokers import kafka, penstock_settings
from differential.negative.cells import Ports, cells
from differential.negative.credentials import HOST, Credentials
from differential.negative.outcomes import DEVIATIONS, PAGE, record, rendered
from penstock.testing import broker


def run(credentials: Credentials, ports: Ports) -> dict[str, str]:
    """The outcome of every cell by its name."""
    return {cell.name: cell.probe(ports)[0] for cell in cells(credentials)}


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="penstock-matrix-") as folder:
        credentials = Credentials(Path(folder))
        listeners = {
            "listeners": f"TLS://{HOST}:0,SASL://{HOST}:0",
            "listener.security.protocol.map": "TLS:SSL,SASL:SASL_PLAINTEXT",
        }
        with broker(config={**listeners, **penstock_settings(credentials)}) as running:
            found = {listener.name: listener.port for listener in running.broker.listeners}
            ours = run(credentials, Ports(found["TLS"], found["SASL"]))
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
    print(f"{len(ours)} cells, {failed} differ")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
