"""HTTP: sessions, checks of requests, JSON routes, server-sent events and static files."""
