"""Config files of the programs of a cluster. Without I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from lab.kubernetes.layout import GATEWAY, POD_NETWORK, Node

__all__ = [
    "ARCHIVE_CLASS",
    "CGROUP",
    "PAUSE_IMAGE",
    "STORAGE_CLASS",
    "USERS",
    "cluster_objects",
    "containerd_config",
    "kube_proxy_config",
    "kubeconfig",
    "kubelet_config",
    "pod_network",
    "tokens",
    "volumes",
]

PAUSE_IMAGE: Final = "localhost/pause:1"
STORAGE_CLASS: Final = "disks-of-zones"
ARCHIVE_CLASS: Final = "archive"
#: the folder of all nodes in each hierarchy of control groups
CGROUP: Final = "penstock-kubernetes"
#: the users of the control plane and their groups; nodes are users of their own
USERS: Final = {
    "admin": "system:masters",
    "kube-controller-manager": "system:masters",
    "system:kube-scheduler": "",
    "system:kube-proxy": "",
    "names": "",
}
_UNUSED: Final = ("aufs", "btrfs", "devmapper", "zfs")
_VOLUMES_PER_ZONE: Final = 2
_RIGHTS: Final = "rbac.authorization.k8s.io/v1"
_API_VERSION: Final = "kubelet.config.k8s.io/v1beta1"


def containerd_config(folder: Path, cni: Path, programs: Path) -> str:
    """The runtime of one node: its images below `folder`, its state in the node's own `/run`."""
    disabled = ", ".join(f'"io.containerd.snapshotter.v1.{name}"' for name in _UNUSED)
    return f"""version = 2
root = "{folder}/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = [{disabled}]

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{programs}/usr/lib/cni"
    conf_dir = "{cni}"

  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""


def pod_network(node: Node, folder: Path) -> str:
    """A cable for each pod of the node, which routes between them."""
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": node.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": f"{folder}/addresses",
    }
    plugin = {"type": "ptp", "ipMasq": False, "ipam": addresses}
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [plugin]})


def kubelet_config(node: Node, folder: Path) -> str:
    """Anonymous requests suffice: only the control plane reaches the network of the nodes."""
    return json.dumps(
        {
            "apiVersion": _API_VERSION,
            "kind": "KubeletConfiguration",
            "address": node.address,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{CGROUP}/{node.name}",
            "clusterDNS": [GATEWAY],
            "clusterDomain": "cluster.local",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "enforceNodeAllocatable": [],
            "evictionHard": {"memory.available": "50Mi"},
            "failCgroupV1": False,
            "failSwapOn": False,
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": False,
            "makeIPTablesUtilChains": False,
            "maxOpenFiles": 20000,
            "maxPods": 30,
            "nodeStatusUpdateFrequency": "4s",
            "oomScoreAdj": 0,
            "podLogsDir": f"{folder}/pods",
            "registerNode": True,
            "resolvConf": "",
            "seccompDefault": True,
            "shutdownGracePeriod": "0s",
            "syncFrequency": "10s",
        }
    )


def kube_proxy_config(node: Node, access: Path) -> str:
    """Services by rules of nftables. Limits of connections stay: they are those of the whole machine."""
    unchanged = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    return json.dumps(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(access)},
            "clusterCIDR": POD_NETWORK,
            "conntrack": unchanged,
            "hostnameOverride": node.name,
            "mode": "nftables",
            "nftables": {"syncPeriod": "30s", "minSyncPeriod": "1s"},
        }
    )


def kubeconfig(server: str, authority: Path, token: str) -> str:
    """How a client reaches the API."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {"server": server, "certificate-authority": str(authority)}}
            ],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
    )


def tokens(users: Mapping[str, str], nodes: Sequence[Node]) -> str:
    """The file of tokens of the API server; `users` has a token for each user and node."""
    groups = USERS | {node.name: "system:nodes" for node in nodes}
    names = {node.name: f"system:node:{node.name}" for node in nodes}
    lines = []
    for user, token in users.items():
        groups_of = f',"{groups[user]}"' if groups[user] else ""
        lines.append(f"{token},{names.get(user, user)},{user}{groups_of}")
    return "\n".join(lines) + "\n"


def volumes(nodes: Sequence[Node], folder: Path) -> Iterator[dict[str, Any]]:
    """Volumes as clouds have them: each can be used in one zone only. One more is shared by all nodes."""
    yield {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    for zone in sorted({node.zone for node in nodes}):
        for number in range(_VOLUMES_PER_ZONE):
            name = f"{zone}-{number}"
            where = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
            yield _volume(name, STORAGE_CLASS, "ReadWriteOnce", folder / name, where)
    anywhere = {"key": "kubernetes.io/hostname", "operator": "Exists"}
    yield _volume("archive", ARCHIVE_CLASS, "ReadWriteMany", folder / "archive", anywhere)


def _volume(name: str, kind: str, mode: str, path: Path, where: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": [mode],
            "storageClassName": kind,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": str(path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}},
        },
    }


def cluster_objects() -> Iterator[dict[str, Any]]:
    """The rights of what answers names."""
    kinds = {"": ["services"], "discovery.k8s.io": ["endpointslices"]}
    yield {
        "apiVersion": _RIGHTS,
        "kind": "ClusterRole",
        "metadata": {"name": "names"},
        "rules": [
            {"apiGroups": [group], "resources": names, "verbs": ["list"]} for group, names in kinds.items()
        ],
    }
    yield {
        "apiVersion": _RIGHTS,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "names"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "names"},
        "subjects": [{"kind": "User", "name": "names", "apiGroup": "rbac.authorization.k8s.io"}],
    }
