"""The monitoring port of a broker: metrics and health over HTTP.

Reads the counters and states of the other packages; nothing else of the broker knows it. Imported only by a
broker that has the port. The pure part is `penstock.observability`.
"""
