"""A cluster that runs in the namespaces of this process (see `enclosure.py`), and commands for it."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from lab.home import LabError, command
from lab.kubernetes import configs
from lab.kubernetes.control import (
    ETCD,
    Files,
    api_server_words,
    controller_words,
    etcd_words,
    scheduler_words,
)
from lab.kubernetes.kubectl import Kubectl
from lab.kubernetes.layout import (
    API_PORT,
    API_SERVICE,
    GATEWAY,
    NODES,
    Node,
    Words,
    cable,
    network_words,
)
from lab.kubernetes.machines import node_script, node_words
from lab.kubernetes.programs import Programs
from penstock.security.certificates import issue, new_authority

__all__ = ["Cluster"]

_PATIENCE_S: Final = 300.0
_PAUSE_S: Final = 0.5
_SERVER: Final = f"https://{GATEWAY}:{API_PORT}"


class Cluster:
    """A control plane, and nodes that can be lost."""

    def __init__(
        self, folder: Path, programs: Programs, images: Sequence[Path], nodes: Sequence[Node] = NODES
    ) -> None:
        self.nodes = tuple(nodes)
        self.files = Files(folder / "control")
        self.kubectl = Kubectl(programs.kubectl, self.files.access("admin"))
        self._folder = folder
        self._programs = programs
        self._images = tuple(images)
        self._environment = {**os.environ, "PATH": programs.path, "LD_LIBRARY_PATH": programs.libraries}
        self._control: dict[str, subprocess.Popen[bytes]] = {}
        self._running: dict[Node, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def lose(self, zone: str) -> None:
        """Take the power and the cables of all nodes of a zone away."""
        for node in self.nodes:
            if node.zone == zone:
                command(["ip", "link", "set", cable(node), "down"], self._folder)
                process = self._running.pop(node)
                process.kill()
                process.wait()

    def bring_back(self, zone: str) -> None:
        """Switch the nodes of a zone on again: their disks are as they were."""
        for node in self.nodes:
            if node.zone == zone and node not in self._running:
                command(["ip", "link", "set", cable(node), "up"], self._folder)
                self._start_node(node)

    def _start(self) -> None:
        for words in network_words(self.nodes):
            command(words, self._folder)
        self._write_secrets()
        data = self._folder / "etcd"
        data.mkdir()
        command(["mount", "-t", "tmpfs", "tmpfs", data], self._folder)
        self._run(etcd_words(data / "data"))
        self._until(lambda: self._answers(f"{ETCD}/health"), "etcd answers")
        self._run(api_server_words(self.files))
        self._until(self._is_ready, "the API server is ready")
        self._run(controller_words(self.files))
        self._run(scheduler_words(self.files))
        self.kubectl.apply(configs.cluster_objects())
        self.kubectl.apply(configs.volumes(self.nodes, self._volumes()))
        names = (sys.executable, "-m", "lab.kubernetes.name_server")
        self._run((*names, str(self.files.access("names")), GATEWAY), "names")
        for node in self.nodes:
            self._prepare_node(node)
            self._start_node(node)
        self._until(self._all_ready, "all nodes are ready")

    def _volumes(self) -> Path:
        folder = self._folder / "volumes"
        for each in configs.volumes(self.nodes, folder):
            if each["kind"] == "PersistentVolume":
                Path(each["spec"]["local"]["path"]).mkdir(parents=True)
        return folder

    def _write_secrets(self) -> None:
        files, now = self.files, datetime.now(UTC)
        files.folder.mkdir()
        authority, accounts = new_authority("kubernetes", now), new_authority("accounts", now)
        hosts = [GATEWAY, API_SERVICE, "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        server = issue(authority, "kube-apiserver", now, hosts=[*hosts, f"{hosts[-1]}.cluster.local"])
        front = issue(authority, "front-proxy-client", now)
        texts = {
            files.authority: authority.certificate,
            files.server: server.certificate,
            files.server_key: server.key,
            files.front: front.certificate,
            files.front_key: front.key,
            files.accounts: accounts.certificate,
            files.accounts_key: accounts.key,
        }
        given = {user: secrets.token_hex(16) for user in [*configs.USERS, *(n.name for n in self.nodes)]}
        texts[files.tokens] = configs.tokens(given, self.nodes)
        for user, token in given.items():
            texts[files.access(user)] = configs.kubeconfig(_SERVER, files.authority, token)
        for path, text in texts.items():
            path.touch(0o600)
            path.write_text(text)

    def _prepare_node(self, node: Node) -> None:
        folder = self._node_folder(node)
        for name in ("logs", "cni"):
            (folder / name).mkdir(parents=True)
        paths = {name: folder / f"{name}.conf" for name in ("containerd", "kubelet", "kube-proxy")}
        network = configs.containerd_config(folder, folder / "cni", self._programs.debian)
        paths["containerd"].write_text(network)
        paths["kubelet"].write_text(configs.kubelet_config(node, folder))
        proxy = self.files.access("system:kube-proxy")
        paths["kube-proxy"].write_text(configs.kube_proxy_config(node, proxy))
        (folder / "cni/10-pods.conflist").write_text(configs.pod_network(node, folder))
        labels = {"topology.kubernetes.io/zone": node.zone, "topology.kubernetes.io/region": "here"}
        access = {"access": self.files.access(node.name)}
        script = node_script(node, folder, paths | access, self._images, labels)
        (folder / "node.sh").write_text(script)

    def _start_node(self, node: Node) -> None:
        folder = self._node_folder(node)
        with (folder / "node.log").open("ab") as log:
            self._running[node] = subprocess.Popen(
                node_words(node, folder / "node.sh"),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _node_folder(self, node: Node) -> Path:
        return self._folder / node.name

    def _run(self, words: Words, name: str = "") -> None:
        name = name or words[0]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._control[name] = subprocess.Popen(
                words, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _answers(self, url: str) -> bool:
        done = subprocess.run(["curl", "-sf", "--max-time", "5", url], stdout=subprocess.DEVNULL)
        return done.returncode == 0

    def _is_ready(self) -> bool:
        try:
            return self.kubectl("get", "--raw=/readyz", "--request-timeout=5s").strip() == "ok"
        except LabError:
            return False

    def _all_ready(self) -> bool:
        found = self.kubectl.read("nodes")["items"]
        ready = [
            each["metadata"]["name"]
            for each in found
            for condition in each["status"].get("conditions", ())
            if condition["type"] == "Ready" and condition["status"] == "True"
        ]
        return len(ready) == len(self.nodes)

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        end_s = time.monotonic() + _PATIENCE_S
        while not condition():
            ended = [name for name, process in self._control.items() if process.poll() is not None]
            ended += [node.name for node, process in self._running.items() if process.poll() is not None]
            if ended:
                raise LabError(f"{' and '.join(ended)} ended; logs are in {self._folder}")
            if time.monotonic() > end_s:
                raise LabError(f"not within {_PATIENCE_S:g} s: {what}; logs are in {self._folder}")
            time.sleep(_PAUSE_S)

    def _end(self) -> None:
        """Processes that this leaves end with the namespace."""
        for process in (*self._running.values(), *self._control.values()):
            process.kill()
            process.wait()
        self._running.clear()
        self._control.clear()
