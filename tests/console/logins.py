"""Logins of users with a password, as `penstock console` makes them of a client config."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from penstock.console.web.sessions import LoginSecurity
from penstock.net.client_security import ClientSecurity, client_security
from penstock.testing.brokers import BrokerThread

__all__ = ["password_login", "tls_login"]


def password_login(protocol: str, configs: Mapping[str, str] | None = None) -> LoginSecurity:
    """The security of a user's connections by SCRAM, with further client configs."""

    def login(user: str, password: str) -> ClientSecurity:
        own = {
            **(configs or {}),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
        }
        made = client_security(protocol, own.get, lambda: "n0nce", in_thread=asyncio.to_thread)
        assert made is not None
        return made

    return login


def tls_login(running: BrokerThread) -> LoginSecurity:
    """The same for a broker with TLS."""
    trusted = running.client_config["ssl.ca.pem"]
    return password_login("SASL_SSL", {"ssl.truststore.certificates": trusted, "ssl.truststore.type": "PEM"})
