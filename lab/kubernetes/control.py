"""The command lines of the control plane. Without I/O."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from lab.kubernetes.layout import API_PORT, GATEWAY, SERVICES, Words

__all__ = ["ETCD", "Files", "api_server_words", "controller_words", "etcd_words", "scheduler_words"]

ETCD: Final = "http://127.0.0.1:2379"
_PEERS: Final = "http://127.0.0.1:2380"
#: a node that is not heard of for this long is lost
_GRACE: Final = "20s"


class Files:
    """Where the files of the control plane are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = folder / "authority.pem"
        self.server = folder / "server.pem"
        self.server_key = folder / "server.key"
        self.front = folder / "front.pem"
        self.front_key = folder / "front.key"
        self.accounts = folder / "accounts.pem"
        self.accounts_key = folder / "accounts.key"
        self.tokens = folder / "tokens.csv"

    def access(self, user: str) -> Path:
        """How a user reaches the API."""
        return self.folder / f"{user.replace(':', '-')}.kubeconfig"


def etcd_words(data: Path) -> Words:
    """The store of the API server."""
    return (
        "etcd",
        f"--data-dir={data}",
        f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}",
        f"--listen-peer-urls={_PEERS}",
        f"--initial-advertise-peer-urls={_PEERS}",
        f"--initial-cluster=default={_PEERS}",
        "--heartbeat-interval=1000",
        "--election-timeout=10000",
    )


def api_server_words(files: Files) -> Words:
    """Aggregated APIs are called at the addresses of their pods: no rules of services apply here."""
    return (
        "kube-apiserver",
        f"--etcd-servers={ETCD}",
        f"--bind-address={GATEWAY}",
        f"--advertise-address={GATEWAY}",
        f"--secure-port={API_PORT}",
        f"--tls-cert-file={files.server}",
        f"--tls-private-key-file={files.server_key}",
        f"--client-ca-file={files.authority}",
        f"--token-auth-file={files.tokens}",
        "--authorization-mode=Node,RBAC",
        f"--service-account-key-file={files.accounts}",
        f"--service-account-signing-key-file={files.accounts_key}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-cluster-ip-range={SERVICES}",
        "--allow-privileged=true",
        "--kubelet-preferred-address-types=InternalIP",
        "--enable-aggregator-routing=true",
        f"--requestheader-client-ca-file={files.authority}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={files.front}",
        f"--proxy-client-key-file={files.front_key}",
        "--request-timeout=60s",
        "--profiling=false",
    )


def controller_words(files: Files) -> Words:
    """The controllers, with the rights of an administrator."""
    access = files.access("kube-controller-manager")
    return (
        "kube-controller-manager",
        f"--kubeconfig={access}",
        f"--authentication-kubeconfig={access}",
        f"--authorization-kubeconfig={access}",
        f"--service-account-private-key-file={files.accounts_key}",
        f"--root-ca-file={files.authority}",
        "--leader-elect=false",
        f"--node-monitor-grace-period={_GRACE}",
        "--horizontal-pod-autoscaler-sync-period=5s",
    )


def scheduler_words(files: Files) -> Words:
    """What gives pods their nodes."""
    access = files.access("system:kube-scheduler")
    return (
        "kube-scheduler",
        f"--kubeconfig={access}",
        f"--authentication-kubeconfig={access}",
        f"--authorization-kubeconfig={access}",
        "--leader-elect=false",
    )
