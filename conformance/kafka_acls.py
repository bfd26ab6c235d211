"""`kafka-acls.sh` in the words of `penstock acl`: ACLs of topics are added and removed."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="kafka-acls.sh")
    options.add_argument("--bootstrap-server", required=True)
    action = options.add_mutually_exclusive_group(required=True)
    for name in ("add", "remove"):
        action.add_argument(f"--{name}", dest="action", action="store_const", const=name)
    principal = options.add_mutually_exclusive_group(required=True)
    principal.add_argument("--allow-principal")
    principal.add_argument("--deny-principal")
    options.add_argument("--allow-host", "--deny-host", dest="host", default="*")
    options.add_argument("--operation", required=True)
    options.add_argument("--topic", required=True)
    options.add_argument("--force", action="store_true")
    return options


def translate(arguments: Sequence[str]) -> list[str]:
    """The `penstock` command line that does the same."""
    wanted = parser().parse_args(arguments)
    principal, resource = wanted.allow_principal or wanted.deny_principal, f"topic:{wanted.topic}"
    place = ["--host", wanted.host, "--bootstrap", wanted.bootstrap_server]
    if wanted.action == "add":
        deny = ["--deny"] if wanted.deny_principal else []
        return ["acl", "add", principal, wanted.operation.lower(), resource, *deny, *place]
    named = ["--principal", principal, "--operation", wanted.operation.lower(), "--resource", resource]
    return ["acl", "remove", *named, *place]


if __name__ == "__main__":
    penstock = Path(sys.executable).with_name("penstock")
    sys.exit(subprocess.run([penstock, *translate(sys.argv[1:])]).returncode)
