"""`penstock plan`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from penstock.cli.planning import calibration
from penstock.planning.coefficients import UNITS, Coefficients
from tests.cli.running import run_here

PLAN = ("plan", "--rate", "1M", "--size", "1KB")
WHOLE = (
    *(*PLAN, "--retention", "7d", "--replicas", "3", "--fan-out", "3", "--zones", "3", "--disk", "8TB"),
    *("--network", "25Gb", "--growth", "10%/month"),
)

Output = Callable[[], tuple[str, str]]


@pytest.fixture
def printed(capfd: pytest.CaptureFixture[str]) -> Output:
    return lambda: capfd.readouterr()


def test_the_plan_of_the_seeds(printed: Output) -> None:
    assert run_here(*WHOLE) == 0
    output, errors = printed()
    assert errors == ""
    for line in (
        r"data rate +1 GB/s",
        r"storage, one copy +604\.8 TB",
        r"storage, all replicas +1\.81 PB",
        r"machines +30 \(10 in each of 3 zones\)",
        r"brokers +\d+ \(\d on each machine\)",
        r"partitions +[\d,]+ ",
        r"cores of a machine +\d+ of 16",
        r"memory of a machine +[\d.]+ GB, ",
        r"disks +360 of 8 TB",
        r"SSD for active segments +[\d.]+ GB per machine",
        r"network in of a broker +[\d.]+ Mb/s, ",
        r"binding constraint +disk space: 28 machines",
        r"month  messages/s .* disks +cores +memory +network in +network out +binding constraint$",
        r" +12 +3,138,428 +3\.14 GB/s +5\.69 PB +81 +\d+ +972 +\d+ +[\d.]+ GB +[\d.]+ Mb/s +[\d.]+ Gb/s",
        r"cores, memory and network are those of one machine$",
        r"the machines and brokers of today suffice for 1 month$",
    ):
        assert re.search(f"^{line}", output, re.MULTILINE), line


@pytest.mark.parametrize(
    ("growth", "line"),
    [
        ("40%/month", "the machines and brokers of today do not suffice for the next month"),
        ("1%/year", "the machines and brokers of today suffice for a year"),
    ],
)
def test_how_long_todays_machines_suffice(growth: str, line: str, printed: Output) -> None:
    assert run_here(*PLAN, "--growth", growth) == 0
    assert line in printed()[0].splitlines()


def test_one_of_something_is_singular(printed: Output) -> None:
    assert run_here("plan", "--rate", "10", "--size", "1KB", "--replicas", "1", "--explain") == 0
    output, _ = printed()
    assert re.search(r"^binding constraint +[a-z ]+: 1 machine$", output, re.MULTILINE)
    assert "(s)" not in output
    assert not re.search(
        r"\b1 (replicas|readers|followers|machines|brokers|consumer groups|voters)\b", output
    )


def test_every_number_is_explained(printed: Output) -> None:
    assert run_here(*WHOLE, "--explain") == 0
    output, _ = printed()
    assert "= 1,000,000 messages/s x 1 KB" in output
    assert "= 604.8 TB x 3 replicas" in output
    for name in UNITS:
        assert re.search(rf"^  {name} +[\d.e-]+ .*: .+", output, re.MULTILINE), name
    figures = output.split("machines by constraint")[0].splitlines()
    assert sum(line.strip().startswith("= ") for line in figures) == len(figures) // 2 - 1


def test_json_has_base_units(printed: Output) -> None:
    assert run_here(*WHOLE, "--json") == 0
    document = json.loads(printed()[0])
    assert document["figures"]["stored_bytes"] == 1.8144e15
    assert document["binding"] == "disk space"
    assert [row["month"] for row in document["year"]] == [0, 3, 6, 9, 12]
    assert "peaks" not in document


def test_a_check_shows_the_highest_use_of_each_limit(printed: Output) -> None:
    assert run_here(*PLAN, "--retention", "1h", "--check", "--json") == 0
    assert all(peak["share"] <= 1 for peak in json.loads(printed()[0])["peaks"])
    assert run_here(*PLAN, "--retention", "1h", "--check") == 0
    output, _ = printed()
    assert re.search(
        r"^checked on paper: the controller's placement in \d+ situations, highest use of each limit$",
        output,
        re.MULTILINE,
    )
    assert re.search(r"^  processor +\d+% with ", output, re.MULTILINE)
    assert "EXCEEDED" not in output


def test_a_check_of_two_zones_fails(printed: Output) -> None:
    assert run_here(*PLAN, "--retention", "1h", "--zones", "2", "--check") == 1
    output, errors = printed()
    assert re.search(r"^  voters +200% with zone 1 lost: EXCEEDED$", output, re.MULTILINE)
    assert "with zone 1 lost the voters have no majority: use 3 zones" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rate", "fast", "--size", "1KB"), "--rate 'fast' is not a rate: write one like 1M, 250k"),
        (("--rate", "1M", "--size", "-1"), "--size '-1' is not a size"),
        (("--rate", "1M", "--size", "5GB"), "a message of 5 GB is too large"),
        ((*PLAN[1:], "--growth", "10%"), "--growth '10%' is not a growth: write one like 10%/month"),
        ((*PLAN[1:], "--network", "25gb"), "write bits like 25Gb, or bytes like 3GB"),
        ((*PLAN[1:], "--replicas", "0"), "--replicas 0 is not in the range from 1 to 15"),
        ((*PLAN[1:], "--disk", "1KB"), "no cluster is this large: disk space alone needs"),
        (("--rate", "1M"), "Missing option '--size'"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], message: str, printed: Output) -> None:
    assert run_here("plan", *arguments) == 2
    output, errors = printed()
    assert output == "" and message in errors and len(errors.splitlines()) == 1


def test_calibration_replaces_the_coefficients(monkeypatch: pytest.MonkeyPatch, printed: Output) -> None:
    def slower(shipped: Coefficients) -> Coefficients:
        import msgspec

        return msgspec.structs.replace(shipped, machine="this machine")

    monkeypatch.setattr(calibration, "calibrated", slower)
    assert run_here(*PLAN, "--calibrate", "--explain") == 0
    assert "coefficients, measured on this machine" in printed()[0]
