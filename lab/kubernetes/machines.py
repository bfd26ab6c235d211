"""The programs of one node, in namespaces of its own. Without I/O.

The script is the first process of a namespace: if it is killed, the whole node is gone at once, as without
power. What is in `/run` is gone with it. Kernel settings that a kubelet would change are files of its own.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from lab.kubernetes.layout import Node, Words

__all__ = ["node_script", "node_words"]

_SOCKET: Final = "/run/containerd/containerd.sock"
#: settings of the whole machine, as a kubelet wants them: with these values it changes nothing
_SETTINGS: Final = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
_ENTER: Final = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def node_words(node: Node, script: Path) -> Words:
    """The command that starts the node."""
    return ("nsenter", f"--net=/run/netns/{node.name}", *_ENTER, "sh", str(script))


def node_script(
    node: Node, folder: Path, files: Mapping[str, Path], images: Sequence[Path], labels: Mapping[str, str]
) -> str:
    """`files` has the config of `containerd`, `kubelet`, `kube-proxy`, and the `access` of kubelet."""
    lines = [
        "set -e",
        "mount --make-rshared /",
        "mount -t tmpfs tmpfs /run",
        "mount -t tmpfs tmpfs /var/log",
        "mkdir -p /run/settings /run/containerd /run/netns",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
    ]
    for number, (name, value) in enumerate(_SETTINGS.items()):
        own = f"/run/settings/{number}"
        lines += [f"echo {value} > {own}", f"mount --bind {own} /proc/sys/{name}"]
    logs = folder / "logs"
    lines.append(_started(["containerd", f"--config={files['containerd']}"], logs / "containerd.log"))
    lines.append(f"until ctr -a {_SOCKET} version >/dev/null 2>&1; do sleep 0.2; done")
    stamp = folder / "images-imported"
    imports = [f"ctr -a {_SOCKET} -n k8s.io images import {shlex.quote(str(path))}" for path in images]
    lines.append(f"test -f {stamp} || {{ {' && '.join(imports)} && touch {stamp}; }}")
    lines.append(_started(["kube-proxy", f"--config={files['kube-proxy']}"], logs / "kube-proxy.log"))
    named = ",".join(f"{name}={value}" for name, value in labels.items())
    words = [
        "kubelet",
        f"--config={files['kubelet']}",
        f"--kubeconfig={files['access']}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
        f"--root-dir={folder}/kubelet",
        f"--cert-dir={folder}/certificates",
        f"--node-labels={named}",
    ]
    lines.append(_started(words, logs / "kubelet.log"))
    lines.append("wait")
    return "\n".join(lines) + "\n"


def _started(words: Sequence[str], log: Path) -> str:
    return f"{shlex.join(words)} >>{log} 2>&1 &"
