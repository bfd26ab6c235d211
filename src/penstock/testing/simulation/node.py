"""A simulated machine with a broker on it: it boots, is held, dies in several ways, and comes back.

The broker is the real one. The machine's disk, clock and randomness outlive it; a boot is a new process.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from penstock.broker.app.broker import Broker, World
from penstock.broker.base.descriptors import DESCRIPTORS
from penstock.broker.base.encrypted_disks import with_encryption
from penstock.model.config import BrokerConfig
from penstock.model.errors import PenstockError
from penstock.ports import Files, ObjectStore
from penstock.testing.disk import FaultyDisk
from penstock.testing.simulation.loop import SimLoop
from penstock.testing.simulation.ports import SimClock, SimRng, SimWorkers
from penstock.testing.simulation.process import Process

__all__ = ["Node"]

PORT: Final = 9092
#: how long a sync takes on a healthy disk
_SYNC_S: Final = (0.0001, 0.002)
#: how long a supervised broker is gone
_RESTART_S: Final = 0.1


class Node:
    """One machine. The methods that inject faults have the names that fault schedules use."""

    def __init__(self, loop: SimLoop, seed: object, node_id: int, settings: Mapping[str, str]) -> None:
        self._loop = loop
        self.id = node_id
        self.name = f"node-{node_id}"
        self.settings = {
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://{self.name}:{PORT}",
            "log.dirs": "/disk",
            # Requests are timed by the real clock.
            "penstock.slow.request.ms": "-1",
            **settings,
        }
        self.clock = SimClock(loop)
        self.rng = SimRng(Random(f"{seed}/{self.name}"))
        self._disk_rng = Random(f"{seed}/{self.name}/disk")
        self.disk = FaultyDisk(self._disk_rng, self.clock)
        self.disk.on_power_loss = self._power_went
        #: the disk as the broker sees it
        self.files: Files = self.disk
        #: the archive of tiered storage
        self.archive: ObjectStore | None = None
        #: how long a sync takes now
        self.sync_s = _SYNC_S
        loop.set_work_time(self.name, lambda: self._disk_rng.uniform(*self.sync_s))
        self._boots = 0
        self._stopped = False
        #: whether the broker before this one ended in good order
        self.after_clean_stop = False
        self._only_killed = False
        self._mounted = False
        #: whether something starts the broker again whenever it ends, as a service manager does
        self.supervised = False
        self._restart_due = False
        self.process: Process | None = None
        #: the broker while it is up: started, and not being stopped
        self.broker: Broker | None = None
        #: the broker from its first moment to its last
        self.program: Broker | None = None

    @property
    def directories(self) -> list[str]:
        """Its data directories; the first has the metadata log."""
        return self.settings["log.dirs"].split(",")

    @property
    def address(self) -> tuple[str, int]:
        return self.name, PORT

    @property
    def is_up(self) -> bool:
        return self.process is not None and not self.process.is_dead

    # -- life

    def boot(self) -> None:
        """Switch the machine on, if it is off, and start the broker."""
        if self.is_up:
            return
        self._boots += 1
        self.after_clean_stop, self._stopped = self._stopped, False
        self.mount()
        self._mounted = False
        self._only_killed = False
        self._loop.network.host_up(self.name)
        self.process = self._loop.new_process(f"{self.name}#{self._boots}", self.name)
        self.note(f"boots ({self._boots})")
        self.process.spawn(self._loop, self._serve())

    def mount(self) -> None:
        """Bring the disk of a machine that is off into the state that the next boot finds."""
        if self.process is not None and not self.is_up and not self._mounted:
            self._mounted = True
            self.disk.restart(power_loss=not self._only_killed)

    async def _serve(self) -> None:
        try:
            config = BrokerConfig(self.settings)
            broker = self.program = await Broker.open(config, self._world(config))
            await broker.start()
        except (PenstockError, OSError) as e:
            self.note(f"does not start: {e}")
            # How the one before it has ended is still how its disk was left.
            self._stopped = self.after_clean_stop
            self._exit()
            return
        except Exception as e:  # noqa: BLE001 - a bug, which ends the run with its name
            self.note(f"fails to start: {e!r}")
            self._loop.call_exception_handler({"message": "broker failed to start", "exception": e})
            return
        self.broker = broker
        self.note("is up")
        await broker.stages.cluster.node.is_over.wait()
        self.note("gives up")
        self._exit()

    def _world(self, config: BrokerConfig) -> World:
        self.files = with_encryption(self.disk, config, self.rng.token)
        return World(
            self.clock, self.rng, self.files, SimWorkers(self._loop), self.clock.computing, self.archive
        )

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """Damage one bit of a file's content on the disk, encrypted or not."""
        stored = getattr(self.files, "stored_position", None)
        self.disk.flip_bit(path, position if stored is None else stored(path, position), bit)

    async def _stop(self, broker: Broker) -> None:
        await broker.stop()
        self.note("stopped")
        self._stopped = True
        self._exit()

    # -- faults

    def kill(self) -> None:
        """`kill -9`: the operating system keeps written data, and closes the sockets."""
        if self.is_up:
            self.note("is killed")
            self._exit()

    def power_off(self) -> None:
        """Power loss: unsynced data is gone, and peers get no reset."""
        self._only_killed = False
        self.disk.power_off()

    def power_off_at(self, changes: int, *, only_killed: bool = False) -> None:
        """Let the power go (or the process be killed) in the middle of things: at the disk's n-th change."""
        self._only_killed = only_killed
        self.disk.crash_at = self.disk.changes + changes

    def stop(self) -> None:
        """Start a controlled shutdown of the broker."""
        if self.is_up and self.broker is not None and self.process is not None:
            self.note("gets SIGTERM")
            broker, self.broker = self.broker, None
            self.process.spawn(self._loop, self._stop(broker))

    def pause(self) -> None:
        if self.is_up and self.process is not None:
            self.note("is paused")
            self.process.pause()

    def resume(self) -> None:
        if self.is_up and self.process is not None:
            self.note("goes on")
            self.process.resume()

    def _power_went(self) -> None:
        self.note("is killed, in the middle of a write" if self._only_killed else "loses power")
        if self.is_up:
            self._end(silently=not self._only_killed)
        if not self._only_killed:
            self._loop.network.host_down(self.name)

    def _exit(self) -> None:
        self._only_killed = True
        self.disk.crash_at = None
        self._end(silently=False)

    def _end(self, *, silently: bool) -> None:
        assert self.process is not None
        self.release()
        self.broker = self.program = None
        self.process.kill()
        self._loop.network.process_died(self.process, silently=silently)
        if self.supervised and not self._restart_due:
            self._restart_due = True
            self._loop.world_later(_RESTART_S, self._restart)

    def release(self) -> None:
        """Have the real process forget a simulated broker that ends without being stopped."""
        if self.program is not None:
            DESCRIPTORS.forget(self.program.stages.replication.maintenance)

    def _restart(self) -> None:
        self._restart_due = False
        self.boot()

    def note(self, text: str) -> None:
        self._loop.trace.note(self._loop.time(), self.name, text)
