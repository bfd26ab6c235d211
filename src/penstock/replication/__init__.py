"""How the replicas of a partition agree: leader, follower and in-sync rules, and nothing that does I/O.

Times are milliseconds of one monotonic clock and are passed in; what has to be sent, appended or truncated is
handed out as a value, and what came of it is told by a call.
"""
