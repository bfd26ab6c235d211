"""A Kubernetes cluster of several nodes on one machine, in namespaces of its own.

`programs.py` builds what it consists of, from Go modules and Debian packages. `layout.py`, `configs.py`,
`control.py` and `machines.py` say what the cluster is, without I/O; `cluster.py` runs it. Everything ends
with one process, and nothing is installed on the machine.
"""
