"""A machine whose listeners use TLS, with the configs that docs/cores.md shows."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.cli.cluster.listening import free_block
from tests.cli.machine.machine_process import running_machine
from tests.cli.running import WAIT_S
from tests.secured import HOST, pki, versions
from tests.waiting import eventually

PAGE = Path(__file__).parents[3] / "docs" / "cores.md"
PASSWORD = "open sesame"


def published_configs(folder: Path, port: int) -> Path:
    """The file of the page, for this machine, in a folder with the files that it names."""
    found = re.search(r"```properties\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    text = found[1].replace("/etc/penstock", str(folder)).replace("0.0.0.0", HOST).replace("machine-1", HOST)
    path = folder / "machine.properties"
    path.write_text(text.replace(":9092", f":{port}").replace(":19092", f":{port + 10_000}"))
    shutil.copy(pki()["server"], folder / "broker.pem")
    shutil.copy(pki()["ca"], folder / "ca.pem")
    (folder / "users.properties").write_text(f'jaas=ScramLoginModule required user_admin="{PASSWORD}";\n')
    return path


@pytest.mark.process
def test_a_machine_serves_tls_on_all_ports_and_stops_in_order(tmp_path: Path) -> None:
    port = free_block(HOST, 3)
    config = published_configs(tmp_path, port)
    with running_machine(tmp_path / "data", "--config", str(config)) as machine:
        assert machine.bootstrap == f"{HOST}:{port}"
        login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "admin", "sasl.password": PASSWORD}
        secured = {"security.protocol": "sasl_ssl", "ssl.ca.location": pki()["ca"], **login}
        client = {"bootstrap.servers": machine.bootstrap, "log_level": 0, **secured}
        admin = AdminClient(client)
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(WAIT_S)
        producer = Producer(client)
        for partition in (0, 1):
            producer.produce("t", b"%d" % partition, partition=partition)
        assert producer.flush(WAIT_S) == 0
        leaders = {p.leader for p in producer.list_topics("t", WAIT_S).topics["t"].partitions.values()}
        assert leaders == {1, 2}
        consumer = Consumer(client | {"group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        assert {consumer.poll(WAIT_S).value() for _ in range(2)} == {b"0", b"1"}
        consumer.close()
        for each in (port, port + 1, port + 2):
            with pytest.raises(OSError):
                versions(each)
        with pytest.raises(OSError):  # between brokers a certificate is required
            versions(port + 10_001, pki().client(None))
        machine.process.send_signal(signal.SIGTERM)
        assert machine.process.wait(WAIT_S) == 0
        eventually(lambda: machine.has_logged("broker=1 ", "event=stopped "), WAIT_S)
        stopped = [line.split()[0] for line in machine.log if "event=stopped " in line]
    assert stopped == ["broker=2", "broker=1"]
