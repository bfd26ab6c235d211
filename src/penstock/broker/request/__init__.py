"""Routes a request to its handler and the response back.

Owns: the dispatchers of the client listeners and of the internal listener, the forwarding of requests to the
active controller, and the creation of topics on behalf of this broker.
Imports: the packages below it, not the handlers: `broker.app` passes their tables.
Used by: `broker.app`, which composes it.
"""
