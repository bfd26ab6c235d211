"""The socket side of a broker: framing, back pressure, responses in the order of requests.

Owns: listeners, connections and their buffers, TLS, SASL before the first request, and connections to other
brokers (`client`). All of them belong to the thread of the event loop.
Imports: `observability`, `wire`, `security`, `quotas`, `ports`, `model`.
Used by: the broker, the command line, and the simulator, which replaces the event loop below it.
"""
