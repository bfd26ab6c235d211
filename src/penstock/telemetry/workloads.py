"""Which workload holds a GPU, from the labels of a sample.

Three kinds of labels meet in a sample that has been through Prometheus:

    the exporter's          pod, namespace and container of the workload; hpc_job of a batch scheduler
    the scrape's own        job, instance, service, endpoint: they name the exporter and never a workload
    the exporter's, renamed exported_pod, exported_job, …: without `honor_labels` Prometheus keeps its own
                            pod, namespace, container and job under the plain names

So where one `exported_` label of a pod is there, the plain ones are the exporter's own pod. An empty label is
not renamed: a GPU without a workload then has the exporter's own pod alone, which is known by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from penstock.model.errors import PenstockError

__all__ = ["NOTHING", "WORKLOAD_LABELS", "Workload", "WrongWorkloadLabels", "parse_order", "workload_of"]

#: Stands for namespace, pod and container together.
_POD: Final = "pod"
#: The order in which labels name a workload. `hpc_job` is dcgm-exporter's; clusters relabel it.
WORKLOAD_LABELS: Final = (
    _POD,
    "exported_job",
    "hpc_job",
    "exported_hpc_job",
    "slurm_job_id",
    "slurm_jobid",
    "slurm_job",
    "SLURM_JOB_ID",
)
_PLAIN: Final = (("namespace", "pod_namespace"), ("pod", "pod_name"), ("container", "container_name"))
_EXPORTED: Final = (("exported_namespace",), ("exported_pod",), ("exported_container",))
#: the exporter's name in a scrape: the name of its pod begins with it
_SCRAPE: Final = ("job", "service")
_EXPORTER: Final = "dcgm-exporter"


class WrongWorkloadLabels(PenstockError):
    """A list of labels that names none."""


class Workload(NamedTuple):
    """The workload of a GPU; all None if there is none. `job` is the first label that is not `pod`."""

    name: str | None
    job: str | None
    pod: str | None
    namespace: str | None


NOTHING: Final = Workload(None, None, None, None)


def parse_order(text: str) -> tuple[str, ...]:
    """The labels of a list with commas."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise WrongWorkloadLabels("--workload-labels names no label, such as pod,exported_job,hpc_job")
    return names


def workload_of(labels: Mapping[str, object], order: Sequence[str] = WORKLOAD_LABELS) -> Workload:
    """The workload that labels name, by the first of `order` that is there."""
    namespace, pod, container = _pod_of(labels)
    names = {_POD: "/".join(part for part in (namespace, pod, container) if part) if pod else None}
    job = None
    for label in order:
        if label != _POD:
            names[label] = _text(labels, (label,))
            job = job or names[label]
    name = next((names[label] for label in order if names[label]), None)
    return Workload(name, job, pod, namespace)


def _pod_of(labels: Mapping[str, object]) -> tuple[str | None, str | None, str | None]:
    exported = [_text(labels, names) for names in _EXPORTED]
    if any(exported):
        return exported[0], exported[1], exported[2]
    namespace, pod, container = (_text(labels, names) for names in _PLAIN)
    scrape = [name for name in (_text(labels, (label,)) for label in _SCRAPE) if name]
    if pod is None:
        # A namespace alone that comes with the scrape's labels is the exporter's.
        return (None if scrape else namespace), None, None
    if _EXPORTER in pod or any(pod == name or pod.startswith(f"{name}-") for name in scrape):
        return None, None, None
    return namespace, pod, container


def _text(labels: Mapping[str, object], names: Sequence[str]) -> str | None:
    """The first of these labels that says something."""
    return next((str(labels[name]) for name in names if labels.get(name) not in (None, "")), None)
