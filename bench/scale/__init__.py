"""`make scale`: the controller with many partitions, by the real metadata code and simulated brokers.

`cluster` makes a cluster of any size and carries out its decisions as the active controller does. `tasks`
measures the work of a controller: brokers fail, zones fail, brokers restart, send heartbeats, partitions are
reassigned. `report` shows the growth of each cost. Each size runs in a process of its own.
"""
