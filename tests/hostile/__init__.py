"""Requests that try to hold a broker's event loop, and the meters that find them; see docs/testing.md."""
