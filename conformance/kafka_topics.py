"""`kafka-topics.sh` in the words of `penstock topic`: create, alter, delete, list and describe."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="kafka-topics.sh")
    options.add_argument("--bootstrap-server", required=True)
    action = options.add_mutually_exclusive_group(required=True)
    for name in ("create", "alter", "delete", "list", "describe"):
        action.add_argument(f"--{name}", dest="action", action="store_const", const=name)
    options.add_argument("--topic")
    options.add_argument("--partitions", type=int)
    options.add_argument("--replication-factor", type=int)
    options.add_argument("--config", action="append", default=[])
    return options


def translate(arguments: Sequence[str]) -> list[str]:
    """The `penstock` command line that does the same."""
    wanted = parser().parse_args(arguments)
    command = ["topic", wanted.action]
    if wanted.topic is not None:
        command.append(wanted.topic)
    if wanted.partitions is not None:
        command += ["--partitions", str(wanted.partitions)]
    if wanted.replication_factor is not None:
        command += ["--replication-factor", str(wanted.replication_factor)]
    for setting in wanted.config:
        command += ["--config", setting]
    return [*command, "--bootstrap", wanted.bootstrap_server]


if __name__ == "__main__":
    penstock = Path(sys.executable).with_name("penstock")
    sys.exit(subprocess.run([penstock, *translate(sys.argv[1:])]).returncode)
