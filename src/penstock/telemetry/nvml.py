"""The GPUs of this host, through NVML.

Each field is read separately: an unsupported or refused field counts as blank and does not affect the rest.
NVML has no "last XID" to read, only events, so that field is missing here; exporters have it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from penstock.model.errors import PenstockError
from penstock.model.installation import pip_install
from penstock.telemetry.fields import FIELDS
from penstock.telemetry.message import Sample, as_message
from penstock.telemetry.outlet import Outlet

__all__ = ["NvmlCollector", "NvmlMissing", "load_nvml"]

_MIB: Final = 1 << 20
_Read: TypeAlias = Callable[[Any], tuple[float, ...]]
#: the numbers of fields that are read together, and how
_Reader: TypeAlias = tuple[tuple[int, ...], _Read]


class NvmlMissing(PenstockError):
    """There is no NVML, or no driver behind it."""


@dataclass(slots=True)
class NvmlCounts:
    rounds: int = 0
    samples: int = 0
    blank: int = 0


def load_nvml() -> Any:
    """Initialized NVML; raises NvmlMissing with the package to install."""
    try:
        import pynvml
    except ImportError as error:
        raise NvmlMissing(f"nvidia-ml-py is missing: {pip_install('telemetry')}") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NvmlMissing(f"no working NVIDIA driver on this host ({error})") from error
    return pynvml


class NvmlCollector:
    """Reads all GPUs once per round. `nvml` is the module, so that tests can bring their own."""

    def __init__(self, nvml: Any, outlet: Outlet, hostname: str | None = None) -> None:
        self.counts = NvmlCounts()
        self._nvml = nvml
        self._outlet = outlet
        self._hostname = hostname or socket.gethostname()
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        #: (handle, uuid, device, labels)
        self._gpus: list[tuple[Any, str, str, dict[str, str]]] = []
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            labels = {"driver_version": driver, "model_name": _text(nvml.nvmlDeviceGetName(handle))}
            self._gpus.append((handle, _text(nvml.nvmlDeviceGetUUID(handle)), f"nvidia{index}", labels))
        self._readers = _readers(nvml)

    @property
    def gpus(self) -> int:
        return len(self._gpus)

    def round(self) -> None:
        """Read everything once, and send it."""
        samples = list(self._read(time.time_ns() // 1_000_000))
        self._outlet.send(map(as_message, samples))
        self.counts.rounds += 1
        self.counts.samples += len(samples)

    def _read(self, at_ms: int) -> Iterator[Sample]:
        for handle, uuid, device, labels in self._gpus:
            for numbers, read in self._readers:
                try:
                    values = read(handle)
                # A driver older than nvidia-ml-py lacks some functions.
                except (self._nvml.NVMLError, AttributeError):
                    self.counts.blank += len(numbers)
                    continue
                for number, value in zip(numbers, values, strict=True):
                    yield Sample(at_ms, FIELDS[number], uuid, device, self._hostname, float(value), labels)


def _readers(nvml: Any) -> list[_Reader]:
    return [*_load_readers(nvml), *_health_readers(nvml)]


def _load_readers(nvml: Any) -> list[_Reader]:
    """Clocks, utilisation, memory and links."""

    def clock(kind: int) -> _Read:
        return lambda gpu: (nvml.nvmlDeviceGetClockInfo(gpu, kind),)

    def utilization(gpu: Any) -> tuple[float, ...]:
        rates = nvml.nvmlDeviceGetUtilizationRates(gpu)
        return rates.gpu, rates.memory

    def memory(gpu: Any) -> tuple[float, ...]:
        # Version 1 of the call counts memory that the driver reserves as used; DCGM does not.
        info = nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2)
        return tuple(size // _MIB for size in (info.total, info.free, info.used, info.reserved))

    return [
        ((100,), clock(nvml.NVML_CLOCK_SM)),
        ((101,), clock(nvml.NVML_CLOCK_MEM)),
        ((102,), clock(nvml.NVML_CLOCK_VIDEO)),
        ((113,), lambda gpu: (nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),)),
        ((190,), lambda gpu: (nvml.nvmlDeviceGetPerformanceState(gpu),)),
        ((203, 204), utilization),
        ((206,), lambda gpu: (nvml.nvmlDeviceGetEncoderUtilization(gpu)[0],)),
        ((207,), lambda gpu: (nvml.nvmlDeviceGetDecoderUtilization(gpu)[0],)),
        ((237,), lambda gpu: (nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),)),
        ((238,), lambda gpu: (nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),)),
        ((250, 251, 252, 253), memory),
    ]


def _health_readers(nvml: Any) -> list[_Reader]:
    """Power, temperature, and error counters."""

    def reading(gpu: Any, number: int) -> float:
        (value,) = nvml.nvmlDeviceGetFieldValues(gpu, [number])
        if value.nvmlReturn != nvml.NVML_SUCCESS:
            raise nvml.NVMLError(value.nvmlReturn)
        return float(value.value.uiVal)

    def errors(kind: int, counter: int) -> _Read:
        return lambda gpu: (nvml.nvmlDeviceGetTotalEccErrors(gpu, kind, counter),)

    def violation(policy: int) -> _Read:
        return lambda gpu: (nvml.nvmlDeviceGetViolationStatus(gpu, policy).violationTime,)

    corrected, uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    volatile, aggregate = nvml.NVML_VOLATILE_ECC, nvml.NVML_AGGREGATE_ECC
    return [
        ((112,), lambda gpu: (nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu),)),
        ((140,), lambda gpu: (reading(gpu, nvml.NVML_FI_DEV_MEMORY_TEMP),)),
        ((150,), lambda gpu: (nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),)),
        ((155,), lambda gpu: (nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,)),
        ((156,), lambda gpu: (nvml.nvmlDeviceGetTotalEnergyConsumption(gpu),)),
        ((157,), lambda gpu: (reading(gpu, nvml.NVML_FI_DEV_POWER_INSTANT) / 1000,)),
        ((164,), lambda gpu: (nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,)),
        ((202,), lambda gpu: (nvml.nvmlDeviceGetPcieReplayCounter(gpu),)),
        ((240,), violation(nvml.NVML_PERF_POLICY_POWER)),
        ((241,), violation(nvml.NVML_PERF_POLICY_THERMAL)),
        ((310,), errors(corrected, volatile)),
        ((311,), errors(uncorrected, volatile)),
        ((312,), errors(corrected, aggregate)),
        ((313,), errors(uncorrected, aggregate)),
        ((394, 393, 396, 395), nvml.nvmlDeviceGetRemappedRows),
    ]


def _text(value: str | bytes) -> str:
    """Older versions of nvidia-ml-py answer in bytes."""
    return value.decode() if isinstance(value, bytes) else value
