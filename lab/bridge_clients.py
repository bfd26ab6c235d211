"""The clients of other systems in an environment that also has the packages of this one.

They are not installed beside the tests: boto3 needs an older python-dateutil than the tests have.

    python -m lab.bridge_clients        prints the interpreter
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from lab.environments import make_environment
from lab.home import built, lab_root

__all__ = ["bridge_python"]

REQUIREMENTS = Path(__file__).with_name("bridge_clients.txt")


def bridge_python() -> Path:
    """The interpreter that can import nats, aio_pika, boto3, and everything that this one can import."""
    here = sysconfig.get_path("purelib")
    folder = built(lab_root() / "bridge-clients", (REQUIREMENTS.read_text(), sys.version, here), _install)
    return folder / "bin" / "python"


def _install(folder: Path) -> None:
    python = make_environment(folder, "--requirement", REQUIREMENTS)
    (own,) = (folder / "lib").glob("python*/site-packages")
    # `addsitedir` also reads the files that make the package editable; a plain path would not.
    here = sysconfig.get_path("purelib")
    (own / "penstock-tests.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    program = folder / "bin" / "penstock"
    program.write_text(f"#!{python}\nfrom penstock.cli import main\n\nmain()\n")
    program.chmod(0o755)


if __name__ == "__main__":
    print(bridge_python())
