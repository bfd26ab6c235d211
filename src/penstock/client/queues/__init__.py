"""`Queue`: consumes topics as a member of a share group (KIP-932), over Penstock's own codec and connections.

The pure part decides: `membership` (heartbeats), `session` (ShareFetch and ShareAcknowledge with one broker),
`decoding` (acquired records). The other modules do I/O: `connections`, `broker_link`, `member`, `running`.

Owned by: the event loop's thread.
Imports: `wire`, `net`, `records`, `security`, `model`, and the modules of the clients. ADR 29 says why not
librdkafka.
Used by: applications, through `penstock.Queue`, and `penstock consume --queue`.
"""
