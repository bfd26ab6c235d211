"""The monitoring port of a broker: metrics and health over HTTP.

Owns: the HTTP server, the pages of metrics and health, and the samples of consumer lag.
Imports: `penstock.observability`, which is the pure part, and the packages of the broker below it, to read
their counters and states.
Used by: `broker.app`, in a broker that has the port.
"""
