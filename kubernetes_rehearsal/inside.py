"""The rehearsal in a cluster of its own, in the namespaces that `lab.kubernetes.enclosure` has made."""

from __future__ import annotations

import sys
from pathlib import Path

from kubernetes_rehearsal.images import CHANGED, FIRST, REPOSITORY
from kubernetes_rehearsal.release import Release
from kubernetes_rehearsal.reporting import report
from kubernetes_rehearsal.scenario import Setting
from lab.home import LabError
from lab.kubernetes.cluster import Cluster
from lab.kubernetes.configs import ARCHIVE_CLASS, STORAGE_CLASS
from lab.kubernetes.programs import programs

__all__ = ["main"]

NAMESPACE = "queue"


def main(folder: Path, result: Path, only: str, keep: bool) -> int:
    needed = programs()
    images = sorted((folder / "images").glob("*.tar"))
    with Cluster(folder, needed, images) as cluster:
        print(f"a cluster of {len(cluster.nodes)} nodes in 3 zones runs; logs are in {folder}", flush=True)
        setting = Setting(
            repository=REPOSITORY,
            tag=FIRST,
            changed=CHANGED,
            pull="Never",
            storage_class=STORAGE_CLASS,
            archive_class=ARCHIVE_CLASS,
            machines=cluster,
        )
        status = report(Release(cluster.kubectl, needed.helm, NAMESPACE), setting, result, only)
        if keep:
            input("the cluster runs until a line is entered: ")
        return status


if __name__ == "__main__":
    try:
        status = main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4] == "keep")
    except LabError as error:
        sys.exit(f"kubernetes: {error}")
    sys.exit(status)
