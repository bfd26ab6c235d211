"""The pods of the clients: one sends numbers all the time, another runs commands. Without I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

__all__ = ["ARCHIVE", "LOAD", "PYTHON", "TOOLS", "chart_values", "client_objects"]

LOAD: Final = "load"
TOOLS: Final = "tools"
ARCHIVE: Final = "archive"
PYTHON: Final = "/usr/local/bin/python3"
_WAITS: Final = "import signal; signal.sigwait([signal.SIGTERM])"
_USER: Final = 10001


def chart_values(
    repository: str, tag: str, pull: str, storage_class: str, archive: bool, external_metrics: bool
) -> dict[str, Any]:
    """The values of the release: small requests, and preStop hooks that fit into the scenario."""
    values: dict[str, Any] = {
        "image": {"repository": repository, "tag": tag, "pullPolicy": pull},
        "persistence": {"size": "1Gi", "storageClass": storage_class},
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "terminationGracePeriodSeconds": 420,
        "preStop": {"timeoutSeconds": 360},
        "unregister": {"schedule": "0 0 1 1 *"},
        "externalMetrics": {"enabled": external_metrics},
    }
    if archive:
        values["backup"] = {
            "enabled": True,
            "archive": f"/{ARCHIVE}/rehearsal",
            "schedule": "0 0 1 1 *",
            "claimName": ARCHIVE,
        }
    return values


def client_objects(
    release: str, image: str, pull: str, bootstrap: str, load: str, node: str, archive_class: str | None
) -> Iterator[dict[str, Any]]:
    """The program of the load and its pod, a pod for commands, and the claim of the archive."""
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": LOAD}, "data": {"load.py": load}}
    if archive_class is not None:
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": ARCHIVE},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": archive_class,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
    volumes: list[dict[str, Any]] = [
        {"name": "config", "configMap": {"name": f"{release}-config"}},
        {"name": "tls", "secret": {"secretName": f"{release}-tls", "defaultMode": 0o440}},
        {"name": "admin", "secret": {"secretName": f"{release}-admin", "defaultMode": 0o440}},
        {"name": LOAD, "configMap": {"name": LOAD}},
        {"name": "tmp", "emptyDir": {}},
    ]
    mounts = {"config": "/etc/penstock/config", "tls": "/etc/penstock/tls", "admin": "/etc/penstock/admin"}
    mounts |= {LOAD: "/load", "tmp": "/tmp"}
    if archive_class is not None:
        volumes.append({"name": ARCHIVE, "persistentVolumeClaim": {"claimName": ARCHIVE}})
        mounts[ARCHIVE] = f"/{ARCHIVE}"
    for name, words in ((TOOLS, ["-c", _WAITS]), (LOAD, ["/load/load.py", LOAD, "40"])):
        container = _container(name, image, pull, words, bootstrap, mounts)
        yield _pod(name, container, volumes, node)


def _container(
    name: str, image: str, pull: str, words: Sequence[str], bootstrap: str, mounts: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": pull,
        "command": [PYTHON, *words],
        "env": [
            {"name": "PENSTOCK_BOOTSTRAP", "value": bootstrap},
            {"name": "PENSTOCK_COMMAND_CONFIG", "value": "/etc/penstock/admin/admin.properties"},
        ],
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": volume, "mountPath": path} for volume, path in mounts.items()],
    }


def _pod(
    name: str, container: Mapping[str, Any], volumes: Sequence[Mapping[str, Any]], node: str
) -> dict[str, Any]:
    """Clients stay on a node that the scenario leaves alone."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "rehearsal"}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _USER,
                "runAsGroup": _USER,
                "fsGroup": _USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [dict(container)],
            "volumes": list(volumes),
        },
    }
