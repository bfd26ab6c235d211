"""The pods of the chart without Kubernetes: brokers in network namespaces, with an API server of objects.

`python -m tests.deploy.pods FOLDER HELM` runs the scenario inside of namespaces of its own, which `unshare`
has made: processes, mounts and networks end with it. Each pod has the files, the variables, the command, the
probe and the hook that the chart gives it. What kubelet and controllers do is done here: start, probe, hook,
SIGTERM.
"""

from __future__ import annotations

import base64
import http.server
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from penstock.security.certificates import issue, new_authority
from tests.deploy.charts import CHART

NAME: Final = "penstock"
NAMESPACE: Final = "queue"
DOMAIN: Final = f"{NAME}-brokers.{NAMESPACE}.svc.cluster.local"
GATEWAY: Final = "10.9.0.1"
PENSTOCK: Final = (sys.executable, "-m", "penstock")
TOKEN: Final = "the token of the pods"
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PATIENCE_S: Final = 180.0
MOST: Final = 5


def run(*words: str, **options: Any) -> str:
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}"
    return str(done.stdout)


def eventually(condition: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.2)


class Api:
    """Answers what pods ask Kubernetes: the StatefulSet, its pods, and the zones of nodes."""

    def __init__(self, folder: Path, existing: Callable[[], set[int]]) -> None:
        self.replicas = 3
        self._existing = existing
        now = datetime.now(UTC)
        authority = new_authority("kubernetes", now)
        (folder / "api.pem").write_text(issue(authority, "api", now, hosts=[GATEWAY]).keystore)
        ACCOUNT.mkdir(parents=True)
        (ACCOUNT / "ca.crt").write_text(authority.certificate)
        (ACCOUNT / "token").write_text(TOKEN)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "api.pem")
        answer = self.answer

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                assert self.headers["Authorization"] == f"Bearer {TOKEN}"
                found = answer(self.path)
                body = json.dumps(found).encode()
                self.send_response(404 if found is None else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Print nothing."""

        server = http.server.ThreadingHTTPServer((GATEWAY, 443), Handler)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def answer(self, path: str) -> dict[str, Any] | None:
        kind, name = path.split("/")[-2:]
        if kind == "statefulsets" and name == NAME:
            return {"metadata": {"name": NAME}, "spec": {"replicas": self.replicas}}
        if kind == "nodes":
            return {"metadata": {"labels": {"topology.kubernetes.io/zone": f"zone-{name[-1]}"}}}
        if kind == "pods" and int(name.rpartition("-")[2]) in self._existing():
            return {"metadata": {"name": name}}
        return None


class Pods:
    """The pods of the StatefulSet of a rendered chart."""

    def __init__(self, folder: Path, manifests: list[dict[str, Any]]) -> None:
        self.folder = folder
        self._pods: dict[int, subprocess.Popen[bytes]] = {}
        self._write(manifests)
        (stateful,) = (each for each in manifests if each["kind"] == "StatefulSet")
        self.container = stateful["spec"]["template"]["spec"]["containers"][0]
        given = {each["name"]: each.get("value", "") for each in self.container["env"]}
        self.variables = {
            "PATH": os.environ["PATH"],
            "PENSTOCK_BOOTSTRAP": given["PENSTOCK_BOOTSTRAP"],
            "PENSTOCK_COMMAND_CONFIG": given["PENSTOCK_COMMAND_CONFIG"],
            "KUBERNETES_SERVICE_HOST": GATEWAY,
            "KUBERNETES_SERVICE_PORT": "443",
        }
        self._network()
        self.api = Api(folder, lambda: set(self._pods))

    def command(self, *words: str, input: str | None = None) -> str:
        """Run `penstock` as a pod of the release, as the administrator."""
        return run(*PENSTOCK, *words, env=self.variables, input=input)

    def start(self, *ordinals: int) -> None:
        for ordinal in ordinals:
            data = self.folder / f"volume-{ordinal}"
            data.mkdir(exist_ok=True)
            script = f'mount --bind "{data}" /var/lib/penstock && exec "$@"'
            words = ["ip", "netns", "exec", f"pod{ordinal}", "unshare", "--mount", "sh", "-c", script, "sh"]
            with (self.folder / f"pod-{ordinal}.log").open("ab") as log:
                self._pods[ordinal] = subprocess.Popen(
                    [*words, *PENSTOCK, *map(str, self.container["args"])],
                    env=self._variables(ordinal),
                    stdout=log,
                    stderr=log,
                )
        for ordinal in ordinals:
            eventually(lambda each=ordinal: self.is_ready(each), f"pod {ordinal} is ready")  # type: ignore[misc]

    def is_ready(self, ordinal: int) -> bool:
        """Ask what the readiness probe of the chart asks."""
        assert self._pods[ordinal].poll() is None, (self.folder / f"pod-{ordinal}.log").read_text()[-3000:]
        probe = self.container["readinessProbe"]["httpGet"]
        url = f"{probe['scheme'].lower()}://10.9.0.{10 + ordinal}:9404{probe['path']}"
        words = [*PENSTOCK, "container", "probe", "--url", url]
        return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def stop(self, ordinal: int) -> None:
        """End a pod as kubelet does: the hook, SIGTERM, and the end of the process."""
        hook = self.container["lifecycle"]["preStop"]["exec"]["command"]
        print(run(*PENSTOCK, *hook[3:], env=self._variables(ordinal)).strip(), flush=True)
        pod = self._pods[ordinal]
        pod.send_signal(signal.SIGTERM)
        assert pod.wait(PATIENCE_S) == 0
        del self._pods[ordinal]

    def kill(self, ordinal: int) -> None:
        self._pods[ordinal].kill()
        self._pods.pop(ordinal).wait()

    def replicas(self) -> dict[int, int]:
        """The number of replicas by registered broker."""
        found = json.loads(self.command("cluster", "status", "--json"))
        return {each["broker"]: each["replicas"] for each in found["brokers"]}

    def _variables(self, ordinal: int) -> dict[str, str]:
        own = {
            "POD_NAME": f"{NAME}-{ordinal}",
            "POD_NAMESPACE": NAMESPACE,
            "NODE_NAME": f"node-{ordinal % 3}",
            "HOST_IP": GATEWAY,
        }
        return {**self.variables, **own}

    def _write(self, manifests: list[dict[str, Any]]) -> None:
        """Config map and secrets, where the chart mounts them."""
        folders = {f"{NAME}-config": "config", f"{NAME}-admin": "admin", f"{NAME}-tls": "tls"}
        home = self.folder / "etc"
        for each in manifests:
            name = folders.get(each["metadata"]["name"])
            if each["kind"] not in ("ConfigMap", "Secret") or name is None:
                continue
            (home / name).mkdir(parents=True)
            for key, text in each["data"].items():
                data = text.encode() if each["kind"] == "ConfigMap" else base64.b64decode(text)
                (home / name / key).write_bytes(data)
                (home / name / key).chmod(0o400)
        for target in ("/etc/penstock", "/var/lib/penstock", "/run/netns", "/var/run/secrets"):
            Path(target).mkdir(parents=True, exist_ok=True)
        run("mount", "--bind", str(home), "/etc/penstock")
        for target in ("/run/netns", "/var/run/secrets"):
            run("mount", "-t", "tmpfs", "tmpfs", target)

    def _network(self) -> None:
        hosts = self.folder / "hosts"
        names = "".join(f"10.9.0.{10 + n} {NAME}-{n}.{DOMAIN}\n" for n in range(MOST))
        hosts.write_text(f"127.0.0.1 localhost\n{names}")
        run("mount", "--bind", str(hosts), "/etc/hosts")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "pods", "type", "bridge")
        run("ip", "address", "add", f"{GATEWAY}/24", "dev", "pods")
        run("ip", "link", "set", "pods", "up")
        for number in range(MOST):
            pod, inside = f"pod{number}", ["ip", "-n", f"pod{number}"]
            run("ip", "netns", "add", pod)
            run("ip", "link", "add", f"out{number}", "type", "veth", "peer", "name", "eth0", "netns", pod)
            run("ip", "link", "set", f"out{number}", "master", "pods", "up")
            run(*inside, "address", "add", f"10.9.0.{10 + number}/24", "dev", "eth0")
            run(*inside, "link", "set", "eth0", "up")
            run(*inside, "link", "set", "lo", "up")


def scenario(pods: Pods) -> None:
    """Install, restart two pods, kill one, scale to five and back, and count."""
    pods.start(0, 1, 2)
    pods.command("topic", "create", "load", "--partitions", "6")
    sent = 0

    def produce() -> int:
        numbers = "".join(f"{number}\n" for number in range(sent, sent + 500))
        pods.command("produce", "load", input=numbers)
        return sent + 500

    sent = produce()
    for ordinal in (2, 0):
        pods.stop(ordinal)
        sent = produce()
        pods.start(ordinal)
    pods.kill(1)
    sent = produce()
    pods.start(1)
    pods.api.replicas = 5
    pods.start(3, 4)
    moved = pods.command("partition", "reassign", "plan")
    plan = pods.folder / "plan.json"
    plan.write_text(moved)
    pods.command("partition", "reassign", "execute", str(plan), "--wait")
    assert min(pods.replicas()[id_] for id_ in (3, 4)) > 0
    sent = produce()
    pods.api.replicas = 3
    for ordinal in (4, 3):
        pods.stop(ordinal)
        assert pods.replicas()[ordinal] == 0
    words = ["container", "unregister", f"--namespace={NAMESPACE}", f"--set-name={NAME}", "--voters=3"]
    eventually(lambda: "still runs" not in pods.command(*words), "brokers 3 and 4 have left")
    assert sorted(pods.replicas()) == [0, 1, 2]
    found = pods.command("consume", "load", "--from-beginning", "--exit-at-end").splitlines()
    numbers = sorted(int(each) for each in found if each.isdigit())
    assert numbers == list(range(sent)), f"{len(numbers)} of {sent}"
    print(f"counted {sent}", flush=True)


def main(folder: Path, helm: str) -> None:
    run("mount", "--make-rprivate", "/")
    words = [helm, "template", NAME, str(CHART), f"--namespace={NAMESPACE}", "--kube-version=v1.34.4"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    scenario(Pods(folder, [each for each in yaml.safe_load_all(done.stdout) if each]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
