"""The steps of the rehearsal, in order. Load runs from the first to the count."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from kubernetes_rehearsal.judging import Count, count
from kubernetes_rehearsal.manifests import LOAD, TOOLS, chart_values, client_objects
from kubernetes_rehearsal.release import Release, eventually, is_ready
from lab.home import LabError

__all__ = ["Machines", "Setting", "Step", "rehearse"]

_LOAD_PROGRAM: Final = Path(__file__).with_name("load.py")
_RESTORED: Final = "load-restored"
_PARTITIONS: Final = "6"


class Machines(Protocol):
    """The machines below a cluster, if they are ours to switch off."""

    def lose(self, zone: str) -> None: ...
    def bring_back(self, zone: str) -> None: ...


class Setting(NamedTuple):
    """What the cluster offers."""

    repository: str
    tag: str
    #: of another image, with the same content
    changed: str
    pull: str
    storage_class: str
    #: of volumes that several nodes share; without one, backups are left out
    archive_class: str | None
    machines: Machines | None

    @property
    def external_metrics(self) -> bool:
        """Whether the release may serve them: a cluster has one server of them."""
        return self.machines is not None


class Step(NamedTuple):
    """One step: what was done, and how long it took."""

    name: str
    seconds: float
    said: str


class _Scenario:
    def __init__(self, release: Release, setting: Setting) -> None:
        self.release = release
        self.setting = setting
        self.kubectl = release.kubectl
        self.sent = 0

    def install(self) -> str:
        release, setting = self.release, self.setting
        release.install(self._values(setting.tag))
        release.wait_until_ready(3)
        zones = sorted(release.zone_of(pod) for pod in release.brokers())
        quiet = release.brokers()[-1]["spec"]["nodeName"]
        image = f"{setting.repository}:{setting.tag}"
        objects = list(
            client_objects(
                release.name,
                image,
                setting.pull,
                release.bootstrap,
                _LOAD_PROGRAM.read_text(),
                quiet,
                setting.archive_class,
            )
        )
        self.kubectl.apply(
            each for each in objects if each["metadata"]["name"] != LOAD or each["kind"] != "Pod"
        )
        self.kubectl("wait", f"pod/{TOOLS}", "--for=condition=Ready", "--timeout=600s")
        release.penstock("topic", "create", LOAD, "--partitions", _PARTITIONS)
        self.kubectl.apply(each for each in objects if each["kind"] == "Pod")
        self.kubectl("wait", f"pod/{LOAD}", "--for=condition=Ready", "--timeout=600s")
        release.wait_for_progress()
        return f"3 brokers in {', '.join(zones)}"

    def ask_for_load(self) -> str:
        if not self.setting.external_metrics:
            return "left out: this cluster may have another server of external metrics"
        loads = dict[str, str]()

        def known() -> bool:
            loads.update(self.release.external_metric("penstock_broker_load", "broker"))
            return len(loads) == 3

        eventually(known, "the API of external metrics has the load of 3 brokers")
        return "loads of the brokers: " + ", ".join(f"{id_}: {load}" for id_, load in sorted(loads.items()))

    def roll(self) -> str:
        release = self.release
        release.upgrade(self._values(self.setting.changed))
        self._rolled()
        images = {pod["spec"]["containers"][0]["image"] for pod in release.brokers()}
        wanted = {f"{self.setting.repository}:{self.setting.changed}"}
        if images != wanted:
            raise LabError(f"after the roll, brokers run {', '.join(sorted(images))}")
        release.wait_for_progress()
        return "to the changed image, one pod at a time"

    def kill(self) -> str:
        name = str(self.release.brokers()[1]["metadata"]["name"])
        before = self.kubectl.read("pod", name)["metadata"]["uid"]
        self.kubectl("delete", "pod", name, "--grace-period=0", "--force")
        self.release.wait_for_progress()
        eventually(lambda: self._other_pod(name, before), f"{name} is replaced")
        self.release.wait_until_ready(3)
        return name

    def drain(self) -> str:
        """While the broker of the drained node is away, the budget refuses to evict another one."""
        release = self.release
        quiet = self.kubectl.read("pod", LOAD)["spec"]["nodeName"]
        pod = next(each for each in release.brokers() if each["spec"]["nodeName"] != quiet)
        node = pod["spec"]["nodeName"]
        words = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=600s")
        other = next(each for each in release.brokers() if each["spec"]["nodeName"] != node)
        self.kubectl("drain", node, *words)
        if release.may_evict(other["metadata"]["name"]):
            raise LabError(
                f"{other['metadata']['name']} may be evicted while {pod['metadata']['name']} is away"
            )
        release.wait_for_progress()
        moved = eventually_somewhere(release, pod["metadata"]["name"], node)
        self.kubectl("uncordon", node)
        release.wait_until_ready(3)
        return f"{node}: {pod['metadata']['name']} {moved}"

    def lose_zone(self) -> str:
        release, machines = self.release, self.setting.machines
        quiet = self.kubectl.read("pod", LOAD)["spec"]["nodeName"]
        pod = next(each for each in release.brokers() if each["spec"]["nodeName"] != quiet)
        zone = release.zone_of(pod)
        if machines is None:
            lost = [each for each in release.brokers() if release.zone_of(each) == zone]
            for each in lost:
                self.kubectl("delete", "pod", each["metadata"]["name"], "--grace-period=0", "--force")
            release.wait_for_progress()
            release.wait_until_ready(3)
            return f"{zone}: its brokers were killed, because its machines are not ours to switch off"
        machines.lose(zone)
        eventually(lambda: not release.all_ready(3), f"Kubernetes sees that {zone} is lost")
        release.wait_for_progress(300)
        machines.bring_back(zone)
        release.wait_until_ready(3)
        return f"{zone}: without power for a while, 300 messages were acknowledged meanwhile"

    def scale(self) -> str:
        release = self.release
        self._scale(5)
        release.wait_until_ready(5)
        eventually(
            lambda: min(release.replicas().get(id_, 0) for id_ in (3, 4)) > 0,
            "the new brokers have replicas",
        )
        held = release.replicas()
        self._scale(3)
        eventually(lambda: len(release.brokers()) == 3, "the pods of brokers 3 and 4 have ended")
        release.wait_until_ready(3)
        left = release.replicas()
        if any(left.get(id_, 0) for id_ in (3, 4)):
            raise LabError(f"brokers 3 and 4 ended with replicas: {left}")
        eventually(lambda: "still runs" not in release.run_now("unregister"), "brokers 3 and 4 have left")
        if sorted(release.replicas()) != [0, 1, 2]:
            raise LabError(f"registered are {sorted(release.replicas())}, not brokers 0 to 2")
        return f"brokers 3 and 4 had {held[3]} and {held[4]} replicas, and gave them back"

    def count(self) -> str:
        found = self.release.end_load()
        if found["failed"]:
            raise LabError(f"{len(found['failed'])} messages failed: {'; '.join(found['failed'][:3])}")
        self.sent = int(found["sent"])
        return f"{self._counted(LOAD)}; the slowest acknowledgement took {found['slowest_s']} s"

    def restore(self) -> str:
        if self.setting.archive_class is None:
            return "left out: this cluster has no volumes that several nodes share"
        self.release.run_now("backup")
        self.release.penstock("topic", "delete", LOAD, "--yes")
        self.release.penstock(
            "restore",
            "/archive/rehearsal",
            f"--bootstrap={self.release.bootstrap}",
            f"--topic={LOAD}={_RESTORED}",
        )
        return f"from the backup: {self._counted(_RESTORED)}"

    def _counted(self, topic: str) -> Count:
        read = self.release.penstock("consume", topic, "--from-beginning", "--exit-at-end")
        found = count(self.sent, read.splitlines())
        if not found.adds_up:
            raise LabError(f"the count of {topic} does not add up: {found}")
        return found

    def _scale(self, replicas: int) -> None:
        self.kubectl("scale", f"statefulset/{self.release.name}", f"--replicas={replicas}")

    def _rolled(self) -> None:
        self.kubectl("rollout", "status", f"statefulset/{self.release.name}", "--timeout=900s")
        self.release.wait_until_ready(3)

    def _other_pod(self, name: str, before: str) -> bool:
        return any(
            pod["metadata"]["name"] == name and pod["metadata"]["uid"] != before
            for pod in self.release.brokers()
        )

    def _values(self, tag: str) -> dict[str, Any]:
        setting = self.setting
        return chart_values(
            setting.repository,
            tag,
            setting.pull,
            setting.storage_class,
            archive=setting.archive_class is not None,
            external_metrics=setting.external_metrics,
        )


def eventually_somewhere(release: Release, name: str, node: str) -> str:
    """Where a pod of a drained node is: elsewhere if its volume can be, or it waits for its node."""

    def settled() -> bool:
        found = {pod["metadata"]["name"]: pod for pod in release.brokers()}.get(name)
        if found is None:
            return False
        waits = any(each.get("reason") == "Unschedulable" for each in found["status"].get("conditions", ()))
        return waits or (is_ready(found) and found["spec"].get("nodeName") != node)

    eventually(settled, f"{name} runs elsewhere, or waits for {node}")
    pod = next(each for each in release.brokers() if each["metadata"]["name"] == name)
    place = pod["spec"].get("nodeName")
    return f"went to {place}" if place else "waited for its node, because its volume is there"


def rehearse(release: Release, setting: Setting, say: Callable[[str], None]) -> Iterator[Step]:
    """Run all steps; the first one that fails ends the rehearsal with a `LabError`."""
    scenario = _Scenario(release, setting)
    steps: dict[str, Callable[[], str]] = {
        "install and produce": scenario.install,
        "ask for external metrics": scenario.ask_for_load,
        "roll to a changed image": scenario.roll,
        "kill a pod": scenario.kill,
        "drain a node": scenario.drain,
        "lose a zone": scenario.lose_zone,
        "scale 3 to 5 to 3": scenario.scale,
        "count": scenario.count,
        "restore a backup": scenario.restore,
    }
    for name, step in steps.items():
        say(f"{name} …")
        began_s = time.monotonic()
        said = step()
        yield Step(name, round(time.monotonic() - began_s, 1), said)
