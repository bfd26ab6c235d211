"""This host's GPUs, through an NVML that is not there."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from penstock.telemetry.fields import FIELDS, Verdict
from penstock.telemetry.nvml import NvmlCollector, NvmlMissing, load_nvml
from tests.telemetry.recorder import Recorder


class FakeNvml(ModuleType):
    """Two GPUs of which the second has no ECC and an old driver; answers as nvidia-ml-py does."""

    class NVMLError(Exception):
        pass

    NVML_SUCCESS = 0
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_CLOCK_VIDEO = 1, 2, 3
    NVML_TEMPERATURE_GPU = 0
    NVML_FI_DEV_MEMORY_TEMP, NVML_FI_DEV_POWER_INSTANT = 82, 186
    NVML_PERF_POLICY_POWER, NVML_PERF_POLICY_THERMAL = 0, 1
    NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 0, 1
    NVML_VOLATILE_ECC, NVML_AGGREGATE_ECC = 0, 1
    nvmlMemory_v2 = 0x02000028

    def __init__(self) -> None:
        super().__init__("pynvml")

    def nvmlInit(self) -> None:
        raise self.NVMLError("Driver Not Loaded")

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.159.04"

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, gpu: int) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetUUID(self, gpu: int) -> str:
        return f"GPU-{gpu}"

    def nvmlDeviceGetClockInfo(self, gpu: int, clock: int) -> int:
        return {1: 1980, 2: 3201, 3: 1545}[clock]

    def nvmlDeviceGetMaxClockInfo(self, gpu: int, clock: int) -> int:
        return 1980

    def nvmlDeviceGetTemperature(self, gpu: int, sensor: int) -> int:
        return 37

    def nvmlDeviceGetFieldValues(self, gpu: int, numbers: list[int]) -> list[Any]:
        values = {82: (0, 36), 186: (0, 127_360) if gpu == 0 else (3, 0)}
        return [
            SimpleNamespace(nvmlReturn=values[n][0], value=SimpleNamespace(uiVal=values[n][1]))
            for n in numbers
        ]

    def nvmlDeviceGetPowerUsage(self, gpu: int) -> int:
        return 127_580

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: int) -> int:
        return 1 << 40

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: int) -> int:
        return 700_000

    def nvmlDeviceGetPerformanceState(self, gpu: int) -> int:
        return 0

    def nvmlDeviceGetPcieReplayCounter(self, gpu: int) -> int:
        return 3

    def nvmlDeviceGetUtilizationRates(self, gpu: int) -> Any:
        return SimpleNamespace(gpu=85, memory=12)

    def nvmlDeviceGetEncoderUtilization(self, gpu: int) -> list[int]:
        return [1, 1000]

    def nvmlDeviceGetDecoderUtilization(self, gpu: int) -> list[int]:
        return [2, 1000]

    def nvmlDeviceGetCurrPcieLinkGeneration(self, gpu: int) -> int:
        return 5

    def nvmlDeviceGetCurrPcieLinkWidth(self, gpu: int) -> int:
        return 16

    def nvmlDeviceGetViolationStatus(self, gpu: int, policy: int) -> Any:
        return SimpleNamespace(violationTime=10 + policy)

    def nvmlDeviceGetMemoryInfo(self, gpu: int, version: int) -> Any:
        mib = 1 << 20
        return SimpleNamespace(total=143_771 * mib, free=140_000 * mib, used=3_156 * mib, reserved=615 * mib)

    def nvmlDeviceGetTotalEccErrors(self, gpu: int, kind: int, counter: int) -> int:
        if gpu == 1:
            raise self.NVMLError("Not Supported")
        return 1 + kind + 2 * counter

    def nvmlDeviceGetRemappedRows(self, gpu: int) -> tuple[int, int, int, int]:
        return 4, 5, 1, 0


def test_nvml_values_are_converted_to_the_units_of_dcgm() -> None:
    recorder = Recorder()
    collector = NvmlCollector(FakeNvml(), recorder, "here")
    collector.round()
    samples = recorder.samples()
    first = {s.field.id: s.value for s in samples if s.gpu_id == "GPU-0"}
    assert (first[155], first[157], first[164]) == (127.58, 127.36, 700.0)
    assert (first[250], first[251], first[252], first[253]) == (143_771, 140_000, 3_156, 615)
    assert (first[203], first[204], first[150], first[140]) == (85, 12, 37, 36)
    assert [first[number] for number in (310, 311, 312, 313)] == [1, 2, 3, 4]
    assert [first[number] for number in (393, 394, 395, 396)] == [5, 4, 0, 1]
    assert (first[240], first[241], first[156]) == (10, 11, 1 << 40)
    assert all(FIELDS[number].judge(value) is Verdict.VALID for number, value in first.items())
    assert {(s.device, s.hostname) for s in samples} == {("nvidia0", "here"), ("nvidia1", "here")}
    assert samples[0].labels == {"driver_version": "580.159.04", "model_name": "NVIDIA H200"}


def test_fields_that_a_gpu_does_not_report_are_counted() -> None:
    recorder = Recorder()
    collector = NvmlCollector(FakeNvml(), recorder)
    collector.round()
    # no event reasons on either, as with an old driver; no errors and no instant power on the second
    assert collector.counts.blank == 2 + 5
    assert collector.counts.samples == len(recorder.messages)
    missing = {s.field.id for s in recorder.samples() if s.gpu_id == "GPU-0"} - {
        s.field.id for s in recorder.samples() if s.gpu_id == "GPU-1"
    }
    assert missing == {157, 310, 311, 312, 313}


def test_a_missing_driver_and_a_missing_library_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    with pytest.raises(NvmlMissing, match=r"no working NVIDIA driver on this host \(Driver Not Loaded\)"):
        load_nvml()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NvmlMissing, match="pip install"):
        load_nvml()
