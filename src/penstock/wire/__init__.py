"""The wire protocol: bytes to messages and back, without I/O.

`schema` is how tables are written, `apis`, `metadata_records` and `control_records` are the tables,
`compiler` turns them into codecs, `messages` adds headers. `conversation` is the client side of a connection,
`routing` a client's view of the cluster. Peers are not trusted: any bytes decode to a message or raise
ProtocolError.

Owns: no connections; codecs are compiled once per API and version.
Imports: `records`, `security`, `ports`, `model`.
Used by: every package that speaks the protocol: brokers, the command line, the Spark source, the simulator.
"""
