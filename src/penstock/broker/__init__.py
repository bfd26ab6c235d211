"""The broker: connects the pure packages with disks and sockets.

Layers from the top: `app`, `monitoring`, `request`, `authorization`, `handlers`, `shares`, `produce`,
`coordinators`, `fetch`, `healing`, `node`, `replica`, `base`. A module imports only from its own package and
from packages below it. Import contracts keep that order. The docstring of each package says what it owns,
imports and is used by.
"""
