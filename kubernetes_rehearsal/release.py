"""The release of the chart: Helm and kubectl, and `penstock` in the pod for commands."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from kubernetes_rehearsal.judging import last_said
from kubernetes_rehearsal.manifests import LOAD, PYTHON, TOOLS
from lab.home import LabError
from lab.kubernetes.kubectl import Kubectl

__all__ = ["Release", "eventually"]

CHART: Final = Path(__file__).parents[1] / "deploy/helm/penstock"
PATIENCE_S: Final = 600.0
_PAUSE_S: Final = 1.0
_ZONE: Final = "topology.kubernetes.io/zone"


def eventually(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait for a condition; `LabError` that names it if it does not hold in time."""
    end_s = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > end_s:
            raise LabError(f"not within {patience_s:g} s: {what}")
        time.sleep(_PAUSE_S)


class Release:
    """A release of the chart in a namespace of its own."""

    name: Final = "penstock"

    def __init__(self, kubectl: Kubectl, helm: Path, namespace: str) -> None:
        self.kubectl = kubectl.within(namespace)
        self.namespace = namespace
        self._helm = helm

    @property
    def bootstrap(self) -> str:
        return f"{self.name}:9092"

    def helm(self, *words: str, values: dict[str, Any] | None = None) -> None:
        """Run Helm in the namespace."""
        place = (f"--kubeconfig={self.kubectl.access}", f"--namespace={self.namespace}")
        options = [] if values is None else ["--values=-"]
        done = subprocess.run(
            [self._helm, *words, *options, *place],
            input=None if values is None else json.dumps(values),
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise LabError(f"helm {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}")

    def install(self, values: dict[str, Any]) -> None:
        self.helm("install", self.name, str(CHART), "--create-namespace", values=values)

    def upgrade(self, values: dict[str, Any]) -> None:
        self.helm("upgrade", self.name, str(CHART), values=values)

    def brokers(self) -> list[dict[str, Any]]:
        """The pods of brokers, by their ordinals."""
        found = self.kubectl.read("pods", "--selector=app.kubernetes.io/component=broker")["items"]
        return sorted(found, key=lambda pod: int(pod["metadata"]["name"].rpartition("-")[2]))

    def all_ready(self, count: int) -> bool:
        """Whether there are `count` brokers, each of them in sync."""
        found = self.brokers()
        return len(found) == count and all(map(is_ready, found))

    def wait_until_ready(self, count: int) -> None:
        eventually(lambda: self.all_ready(count), f"{count} brokers are in sync")

    def zone_of(self, pod: dict[str, Any]) -> str:
        node = self.kubectl.read("node", pod["spec"]["nodeName"])
        return str(node["metadata"]["labels"].get(_ZONE, ""))

    def penstock(self, *words: str) -> str:
        """Run a command in the pod for commands, as the administrator."""
        return self.kubectl("exec", TOOLS, "--", PYTHON, "-m", "penstock", *words)

    def replicas(self) -> dict[int, int]:
        """The number of replicas by registered broker."""
        found = json.loads(self.penstock("cluster", "status", "--json"))
        return {each["broker"]: each["replicas"] for each in found["brokers"]}

    def may_evict(self, pod: str) -> bool:
        """Whether the disruption budget lets this pod go now; nothing is evicted."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.namespace},
            "deleteOptions": {"dryRun": ["All"]},
        }
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/eviction"
        try:
            self.kubectl("create", f"--raw={path}", "--filename=-", given=json.dumps(eviction))
        except LabError as error:
            if "disruption budget" not in str(error):
                raise
            return False
        return True

    def external_metric(self, name: str, label: str) -> dict[str, str]:
        """The values of a metric by one of its labels; nothing while its server does not answer."""
        path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{self.namespace}/{name}"
        try:
            found = json.loads(self.kubectl("get", f"--raw={path}"))
        except LabError:
            return {}
        return {each["metricLabels"][label]: each["value"] for each in found["items"]}

    def load(self) -> dict[str, Any]:
        """What the load said last."""
        return last_said(self.kubectl("logs", LOAD, "--tail=20"))

    def wait_for_progress(self, messages: int = 100) -> None:
        """Wait until this many more messages are acknowledged."""
        before = int(self.load().get("acknowledged", 0))
        eventually(
            lambda: int(self.load().get("acknowledged", 0)) >= before + messages,
            f"{messages} more messages are acknowledged",
        )

    def end_load(self) -> dict[str, Any]:
        """Stop the load; what it says at its end."""
        self.kubectl("exec", LOAD, "--", PYTHON, "-c", "import os; os.kill(1, 15)")
        eventually(lambda: bool(self.load().get("ended")), "the load has sent everything")
        return self.load()

    def run_now(self, job: str) -> str:
        """Run a CronJob of the release once; what it printed."""
        name = f"{job}-now"
        self.kubectl("create", "job", name, f"--from=cronjob/{self.name}-{job}")
        eventually(lambda: self._job_ended(name), f"the job {job} ends")
        said = self.kubectl("logs", f"job/{name}")
        if not self.kubectl.read("job", name)["status"].get("succeeded"):
            raise LabError(f"the job {job} failed: {said.strip()}")
        self.kubectl("delete", "job", name, "--wait=true")
        return said

    def _job_ended(self, name: str) -> bool:
        status = self.kubectl.read("job", name)["status"]
        return any(
            each["type"] in ("Complete", "Failed") and each["status"] == "True"
            for each in status.get("conditions", ())
        )


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether a pod is ready, and not about to end."""
    conditions = pod["status"].get("conditions", ())
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]
