"""What the file of thresholds says of hosts."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.telemetry.inventory import NO_HOSTS, Inventory
from penstock.telemetry.thresholds import Host, WrongThresholds, load_thresholds

FILE = """
hosts:
  dgx-07: {gpus: 4, rack: A2}
  "dgx-0*": {gpus: 8, rack: A1}
  "login-?": {gpus: 0}
"""


def test_the_first_entry_that_names_a_host_counts() -> None:
    inventory = Inventory(load_thresholds(FILE).hosts)
    assert inventory.of("dgx-07") == Host(gpus=4, rack="A2")
    assert inventory.of("dgx-01") == inventory.of("dgx-012") == Host(gpus=8, rack="A1")
    assert inventory.of("login-1") == Host(gpus=0)
    assert inventory.of("dgx-17") == inventory.of(None) == Host()
    assert list(inventory.named) == ["dgx-07"]
    assert inventory.has_racks
    assert not NO_HOSTS.has_racks


def test_rows_get_the_racks_of_their_hosts() -> None:
    hosts = pa.chunked_array([["dgx-01", None], ["dgx-07", "other", "dgx-01"]])
    rows = Inventory(load_thresholds(FILE).hosts).with_racks(pa.table({"hostname": hosts}))
    assert rows["rack"].to_pylist() == ["A1", None, "A2", None, "A1"]
    empty = pa.table({"hostname": pa.array([], pa.string())})
    assert NO_HOSTS.with_racks(empty)["rack"].to_pylist() == []


@pytest.mark.parametrize("text", ["hosts: {a: {gpus: -1}}", "hosts: {a: {gpu: 8}}", "hosts: [a]"])
def test_a_malformed_entry_is_refused(text: str) -> None:
    with pytest.raises(WrongThresholds, match="hosts"):
        load_thresholds(text)
