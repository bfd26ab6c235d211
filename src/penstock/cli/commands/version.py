"""`penstock version`."""

from __future__ import annotations

from penstock.cli.help_text import examples
from penstock.cli.options import AsJson


@examples("penstock version")
def version(as_json: AsJson = False) -> None:
    """Show the versions of Penstock, Python and librdkafka."""
    import platform

    from confluent_kafka import libversion

    import penstock
    from penstock.cli.output import print_json

    versions = {
        "penstock": penstock.__version__,
        "python": platform.python_version(),
        "librdkafka": libversion()[0],
    }
    if as_json:
        print_json(versions)
    else:
        print(" ".join(f"{name} {number}" for name, number in versions.items()))
