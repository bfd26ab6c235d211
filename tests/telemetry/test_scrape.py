"""Scraping exporters that answer, refuse, lie, and take too long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock.telemetry.message import Sample
from penstock.telemetry.scrape import Scraper
from penstock.telemetry.targets import MalformedTargets, Target, read_targets, target
from tests.telemetry.recorder import Recorder

UUID = "GPU-5fd4f087-86f3-7a43-b711-4771313afc50"
METRICS = f"""\
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="{UUID}",device="nvidia0",Hostname="dgx-1",pod="a"}} 42
DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="{UUID}",device="nvidia0",Hostname="dgx-1",pod="a"}} NaN
process_open_fds 7
"""


class Exporter(ThreadingHTTPServer):
    """Answers by path: /metrics as it should, /hang never, /drip one byte at a time, /html nonsense."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.over = threading.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Exporter

    def do_GET(self) -> None:
        if self.path == "/hang":
            self.server.over.wait(120)
            return
        if self.path not in ("/metrics", "/html", "/drip"):
            self.send_error(404, "no such page")
            return
        self.send_response(200)
        self.end_headers()
        if self.path == "/drip":
            while not self.server.over.wait(0.02):
                try:
                    self.wfile.write(b"#")
                except OSError:
                    return
        self.wfile.write(METRICS.encode() if self.path == "/metrics" else b"<html>}{")

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    server = Exporter()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def scrape(
    *targets: Target, timeout_s: float = 60.0, jitter_s: float = 0.0
) -> tuple[list[Sample], Scraper, list[str]]:
    recorder, complaints = Recorder(), list[str]()
    scraper = Scraper(
        recorder,
        timeout_s=timeout_s,
        jitter_s=jitter_s,
        on_failure=lambda one, reason: complaints.append(f"{one.instance} {reason}"),
    )
    scraper.round(targets)
    return recorder.samples(), scraper, complaints


def test_a_scrape_has_the_metrics_of_an_exporter_and_that_it_is_up(exporter: Exporter) -> None:
    one = target(exporter.address, [("rack", "r1"), ("pod", "not this one")])
    samples, scraper, complaints = scrape(one, one, jitter_s=0.01)
    utilisation, up = samples
    assert (utilisation.gpu_id, utilisation.value, utilisation.hostname) == (UUID, 42.0, "dgx-1")
    assert utilisation.labels == {"rack": "r1", "pod": "a"}
    assert (up.field.name, up.gpu_id, up.hostname, up.value) == ("up", exporter.address, "127.0.0.1", 1.0)
    counts = scraper.counts
    assert (counts.rounds, counts.scrapes, counts.failures) == (1, 1, 0)
    assert (counts.samples, counts.foreign, counts.blank) == (2, 1, 1)
    assert complaints == []


@pytest.mark.parametrize(
    ("page", "reason"),
    [("/nothing", "no such page"), ("/html", "Prometheus"), ("/hang", "timed out"), ("/drip", "")],
)
def test_a_failing_exporter_is_down_and_delays_no_other(exporter: Exporter, page: str, reason: str) -> None:
    bad, good = target(f"http://{exporter.address}{page}"), target(exporter.address)
    # As long as the good one may take on a machine that stands still: of the bad ones, two take it all.
    samples, scraper, complaints = scrape(bad, good, timeout_s=3.0)
    assert sorted(s.value for s in samples if s.field.name == "up") == [0.0, 1.0]
    assert (scraper.counts.scrapes, scraper.counts.failures) == (2, 1)
    (complaint,) = complaints
    assert reason in complaint


def test_a_missing_exporter_is_down() -> None:
    samples, _, complaints = scrape(target("127.0.0.1:1"))
    assert [(s.field.name, s.value) for s in samples] == [("up", 0.0)]
    assert "refused" in complaints[0]


def test_addresses() -> None:
    assert target("dgx-1:9400").url == "http://dgx-1:9400/metrics"
    assert target("https://dgx-1:9400/federate?a=b").url == "https://dgx-1:9400/federate?a=b"
    assert (target("dgx-1:9400").instance, target("dgx-1:9400").host) == ("dgx-1:9400", "dgx-1")
    for address in ("file:///etc/passwd", "ftp://x", "http://", ""):
        with pytest.raises(MalformedTargets):
            target(address)


def test_files_of_targets(tmp_path: Path) -> None:
    path = tmp_path / "targets.json"
    path.write_text('[{"targets": ["a:1", "b:2"], "labels": {"rack": "r1"}}, {"targets": ["c:3"]}]')
    assert [(one.instance, dict(one.labels)) for one in read_targets(path)] == [
        ("a:1", {"rack": "r1"}),
        ("b:2", {"rack": "r1"}),
        ("c:3", {}),
    ]
    path.write_text("- targets: [d:4]\n")
    assert [one.instance for one in read_targets(path)] == ["d:4"]


@pytest.mark.parametrize("text", ["{", "[1]", "- labels: {}", "- targets: 3", "[{targets: ['ftp://x']}]"])
def test_files_that_are_no_targets(tmp_path: Path, text: str) -> None:
    path = tmp_path / "targets.yaml"
    path.write_text(text)
    with pytest.raises(MalformedTargets):
        read_targets(path)
    with pytest.raises(MalformedTargets):
        read_targets(tmp_path / "missing")
