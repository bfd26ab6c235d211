"""Routes a request to its handler and the response back.

Owns: the dispatchers of the client listeners and of the internal listener, the forwarding of requests to the
active controller, and the creation of topics on behalf of this broker.
Imports: `broker.coordinators`, `broker.node` and `broker.base`. `broker.app` passes the tables of handlers.
Used by: `broker.app`, which composes it.
"""
