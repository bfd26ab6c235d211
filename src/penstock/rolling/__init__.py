"""Restarts the brokers of a cluster one after the other, without a pause for clients.

- `state` is the cluster as a roll sees it; `planner` decides the next step from it; `progress` is what a roll
  that was stopped continues with. They do no I/O.
- `observing` reads the state over the wire protocol, from any cluster that speaks it.
- `driver` carries the steps out. What restarts a broker is a hook: a process of this machine, a command
  such as `systemctl` or `kubectl`.

Imports: `net`, `wire` and `model`.
Used by: `penstock.cli` (`penstock cluster roll`), and by programs that bring a hook of their own.
"""
