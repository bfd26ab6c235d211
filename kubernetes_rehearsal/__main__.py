"""`make kubernetes`: the chart on a Kubernetes cluster of its own, or on that of KUBECONFIG.

Without a cluster it builds Kubernetes once, and starts four nodes in three zones on this machine. Where this
cannot be done it says why, and exits with 2. With KUBECONFIG, IMAGE and CHANGED name two images that the
nodes can pull, STORAGE_CLASS the class of the volumes, and ARCHIVE_CLASS one of volumes that nodes share.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

from kubernetes_rehearsal.images import write_images
from kubernetes_rehearsal.release import Release
from kubernetes_rehearsal.reporting import report
from kubernetes_rehearsal.scenario import Setting
from lab.helm import helm_built, helm_program
from lab.home import LabError, lab_root, require
from lab.kubernetes.enclosure import enclosed
from lab.kubernetes.kubectl import Kubectl
from lab.kubernetes.programs import programs

_RESULT: Final = Path("build/kubernetes.json")
_NAMESPACE: Final = "penstock-rehearsal"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kubernetes_rehearsal", description=__doc__)
    parser.add_argument("--until", default="", metavar="WORD", help="the last step is one with this word")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running until Enter")
    given = parser.parse_args()
    # A process that is terminated ends its cluster, too: an exception leaves the blocks below in order.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        if access := os.environ.get("KUBECONFIG"):
            return _existing(Path(access), given.until)
        return _own(given.until, given.keep)
    except LabError as error:
        print(f"kubernetes: {error}", file=sys.stderr)
        print("kubernetes: KUBECONFIG=FILE IMAGE=… CHANGED=… uses a cluster that exists", file=sys.stderr)
        return 2


def _own(until: str, keep: bool) -> int:
    needed = programs()
    home = Path(tempfile.mkdtemp(prefix="cluster-", dir=lab_root() / "kubernetes"))
    try:
        (home / "images").mkdir()
        write_images(home / "images", needed.pause)
        words = [sys.executable, "-m", "kubernetes_rehearsal.inside", str(home), str(_RESULT.resolve())]
        status = enclosed([*words, until, "keep" if keep else "end"])
    finally:
        if not keep:
            shutil.rmtree(home)
    return status


def _existing(access: Path, until: str) -> int:
    require("kubectl")
    image, changed = (os.environ.get(name, "") for name in ("IMAGE", "CHANGED"))
    if ":" not in image or ":" not in changed or image.rpartition(":")[0] != changed.rpartition(":")[0]:
        raise LabError("IMAGE and CHANGED have to be two tags of one repository, such as registry/penstock:1")
    repository, _, tag = image.rpartition(":")
    setting = Setting(
        repository=repository,
        tag=tag,
        changed=changed.rpartition(":")[2],
        pull="IfNotPresent",
        storage_class=os.environ.get("STORAGE_CLASS", ""),
        archive_class=os.environ.get("ARCHIVE_CLASS"),
        machines=None,
    )
    kubectl = Kubectl(Path(shutil.which("kubectl") or "kubectl"), access)
    release = Release(kubectl, helm_built() or helm_program(), _NAMESPACE)
    return report(release, setting, _RESULT, until)


if __name__ == "__main__":
    sys.exit(main())
