"""The GPUs of a simulated fleet and the jobs that they are given, drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias
from uuid import UUID

import numpy as np
import numpy.typing as npt

__all__ = ["GPUS_PER_HOST", "Fleet", "Floats", "Ints", "Job", "JobKind", "build_fleet"]

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

GPUS_PER_HOST: Final = 8
MODEL: Final = "NVIDIA H200"
DRIVER: Final = "580.159.04"
NO_JOB: Final = -1
#: the PCI buses of a host's GPUs
_BUSES: Final = ("18", "2A", "3A", "5D", "9A", "AB", "BA", "DB")


class JobKind(IntEnum):
    IDLE = 0
    TRAINING = 1
    INFERENCE = 2
    NOTEBOOK = 3


@dataclass(frozen=True, slots=True)
class Job:
    """A workload on some GPUs."""

    name: str
    kind: JobKind
    namespace: str
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fleet:
    """GPUs by number; number // GPUS_PER_HOST is the host's."""

    hostnames: tuple[str, ...]
    uuids: tuple[str, ...]
    jobs: tuple[Job, ...]
    #: by GPU: its job's place in `jobs`, or NO_JOB
    job_of: Ints
    kind_of: Ints

    @property
    def gpus(self) -> int:
        return len(self.uuids)

    @property
    def hosts(self) -> int:
        return len(self.hostnames)

    def job(self, gpu: int) -> Job | None:
        number = int(self.job_of[gpu])
        return None if number == NO_JOB else self.jobs[number]

    def labels(self, gpu: int) -> dict[str, str]:
        """The labels of an exporter for a GPU and its workload."""
        bus = _BUSES[gpu % GPUS_PER_HOST]
        labels = {"driver_version": DRIVER, "model_name": MODEL, "pci_bus_id": f"00000000:{bus}:00.0"}
        job = self.job(gpu)
        if job is not None:
            host = gpu // GPUS_PER_HOST
            labels |= {"hpc_job": job.name, "namespace": job.namespace, "pod": f"{job.name}-{host}"}
        return labels


def build_fleet(hosts: int, seed: int) -> Fleet:
    """`hosts` machines of eight GPUs: most run training jobs on whole hosts; the rest run single-GPU jobs."""
    rng = np.random.default_rng([seed, 0])
    gpus = hosts * GPUS_PER_HOST
    uuids = tuple(f"GPU-{UUID(bytes=rng.bytes(16), version=4)}" for _ in range(gpus))
    jobs: list[Job] = []
    job_of: Ints = np.full(gpus, NO_JOB, dtype=np.int64)
    kind_of: Ints = np.zeros(gpus, dtype=np.int64)

    def place(kind: JobKind, members: range) -> None:
        name = f"{kind.name.lower()}-{len(jobs):04d}"
        jobs.append(Job(name, kind, f"team-{int(rng.integers(6))}", tuple(members)))
        job_of[members.start : members.stop] = len(jobs) - 1
        kind_of[members.start : members.stop] = kind

    host = 0
    while host < hosts:
        first = host * GPUS_PER_HOST
        # The first host trains, so that the smallest fleet has a job with siblings.
        use = 0.0 if host == 0 else float(rng.random())
        if use < 0.6:
            length = min(int(rng.choice([1, 2, 4, 8])), hosts - host)
            place(JobKind.TRAINING, range(first, first + length * GPUS_PER_HOST))
            host += length
            continue
        if use < 0.8:
            place(JobKind.INFERENCE, range(first, first + 4))
            place(JobKind.INFERENCE, range(first + 4, first + 8))
        elif use < 0.92:
            for gpu in range(first, first + 6):
                place(JobKind.NOTEBOOK, range(gpu, gpu + 1))
        host += 1
    hostnames = tuple(f"dgx-{number:04d}" for number in range(hosts))
    return Fleet(hostnames, uuids, tuple(jobs), job_of, kind_of)
