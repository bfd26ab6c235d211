"""The security of a cluster on this machine: what `penstock cluster start --secure` creates.

    DIR/security/ca.pem             the certificate of the authority; clients trust it
                 ca-key.pem         its private key
                 users.properties   the admin's password, for the brokers
                 admin.properties   the client config of the admin
                 metrics-token      the bearer token of the ports for metrics and health
    DIR/broker-1/keystore.pem       the broker's private key and certificate

All files but `ca.pem` are readable by their owner alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.cli.failure import Failure
from penstock.cli.private_files import write_private
from penstock.model.config.monitoring_keys import AUTO_TLS
from penstock.model.config.security_keys import DEFAULT_MECHANISM

if TYPE_CHECKING:
    from penstock.cli.cluster.broker_home import BrokerHome

__all__ = ["SECURE_LISTENER", "ClusterSecurity"]

SECURE_LISTENER: Final = "SASL_SSL"
ADMIN: Final = "admin"
#: the user that all brokers are to each other
_NODES: Final = "broker"
_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_USERS_KEY: Final = "sasl.jaas.config"


class ClusterSecurity:
    """The files of the security of a cluster."""

    def __init__(self, directory: Path) -> None:
        self.directory = (directory / "security").absolute()
        self.authority_file = self.directory / "ca.pem"
        self.key_file = self.directory / "ca-key.pem"
        self.users_file = self.directory / "users.properties"
        self.client_file = self.directory / "admin.properties"
        self.metrics_file = self.directory / "metrics-token"

    @property
    def exists(self) -> bool:
        return self.client_file.exists()

    def create(self) -> None:
        """Make the authority, the admin user and the client config."""
        from penstock.security.certificates import new_authority

        authority = new_authority("penstock cluster", datetime.now(UTC))
        password = secrets.token_urlsafe(24)
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.authority_file.write_text(authority.certificate)
            write_private(self.key_file, authority.key)
            write_private(self.users_file, f'{_USERS_KEY}={_MODULE} user_{ADMIN}="{password}";\n')
            write_private(self.metrics_file, secrets.token_urlsafe(24) + "\n")
            write_private(self.client_file, self._client_config(password))
        except OSError as error:
            raise Failure(f"cannot create {self.directory}: {error.strerror}") from error

    def _client_config(self, password: str) -> str:
        return (
            "# Written by `penstock cluster start --secure`. Keep it private.\n"
            "security.protocol=SASL_SSL\n"
            f"sasl.mechanism={DEFAULT_MECHANISM}\n"
            f'sasl.jaas.config={_MODULE} username="{ADMIN}" password="{password}";\n'
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.authority_file}\n"
        )

    def configs_of(self, home: BrokerHome) -> dict[str, str]:
        """The security configs of a broker."""
        users = f"${{file:{self.users_file}:{_USERS_KEY}}}"
        return {
            "listener.security.protocol.map": f"{SECURE_LISTENER}:SASL_SSL,INTERNAL:SSL",
            "ssl.keystore.location": str(self.keystore_of(home)),
            "ssl.truststore.location": str(self.authority_file),
            "listener.name.internal.ssl.client.auth": "required",
            "listener.name.internal.ssl.principal.mapping.rules": f"RULE:^CN=broker-[0-9]+$/{_NODES}/",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN};User:{_NODES}",
            "sasl.enabled.mechanisms": DEFAULT_MECHANISM,
            f"listener.name.{SECURE_LISTENER.lower()}.{DEFAULT_MECHANISM.lower()}.sasl.jaas.config": users,
            **self._monitoring(),
        }

    def _monitoring(self) -> dict[str, str]:
        """TLS and the token of the ports for metrics and health: they name all topics and groups."""
        # A cluster of an earlier version has no token, and its brokers serve no metrics.
        if self.exists and not self.metrics_file.exists():
            return {}
        return {
            "penstock.metrics.listener": AUTO_TLS,
            "penstock.metrics.token": f"${{file:{self.metrics_file}}}",
        }

    @staticmethod
    def keystore_of(home: BrokerHome) -> Path:
        return (home.path / "keystore.pem").absolute()

    def issue(self, homes: Sequence[BrokerHome], host: str) -> None:
        """Make certificates for brokers that listen at `host`. Running brokers load them again."""
        from penstock.security.certificates import Issued, issue

        try:
            authority = Issued(self.authority_file.read_text(), self.key_file.read_text())
        except OSError as error:
            raise Failure(f"cannot read the authority in {self.directory}: {error.strerror}") from error
        hosts = list(dict.fromkeys((host, "localhost", "127.0.0.1")))
        for home in homes:
            home.path.mkdir(parents=True, exist_ok=True)
            issued = issue(authority, f"broker-{home.id}", datetime.now(UTC), hosts=hosts)
            write_private(self.keystore_of(home), issued.keystore)
