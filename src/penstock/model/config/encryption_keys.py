"""The broker configs of encryption at rest: the keys, and where they come from."""

from __future__ import annotations

from typing import Final

from penstock.model.config.keys import ConfigKey, ConfigType

__all__ = ["AWS_KMS", "COMMAND", "ENCRYPTION_KEYS", "FILE_PROVIDER", "TEXT_PROVIDERS", "VAULT_TRANSIT"]

FILE_PROVIDER: Final = "file"
COMMAND: Final = "command"
VAULT_TRANSIT: Final = "vault-transit"
AWS_KMS: Final = "aws-kms"
#: the providers that give a text of keys, the same to all brokers
TEXT_PROVIDERS: Final = (FILE_PROVIDER, COMMAND)

ENCRYPTION_KEYS: list[ConfigKey] = [
    ConfigKey(
        "penstock.encryption.keys",
        ConfigType.PASSWORD,
        None,
        "The keys that encrypt data directories, as NAME:BASE64, best as `${file:PATH}`. The first one is "
        "for new files, the others are for files that exist. Without keys, data is not encrypted.",
    ),
    ConfigKey(
        "penstock.encryption.key.provider",
        ConfigType.STRING,
        FILE_PROVIDER,
        "Where the keys of data directories come from: `file` is penstock.encryption.keys, `command` the "
        "output of a command. `vault-transit` and `aws-kms` encrypt the keys, which are stored beside the "
        "data, with a key that does not leave the service.",
        choices=(FILE_PROVIDER, COMMAND, VAULT_TRANSIT, AWS_KMS),
    ),
    ConfigKey(
        "penstock.encryption.key.command",
        ConfigType.STRING,
        None,
        "The command of the provider `command`, with arguments and without a shell. It writes keys in the "
        "form of penstock.encryption.keys to its standard output.",
    ),
    ConfigKey(
        "penstock.encryption.key.id",
        ConfigType.STRING,
        None,
        "The key of `vault-transit` (a name) or `aws-kms` (an id, ARN or alias).",
    ),
    ConfigKey(
        "penstock.encryption.key.timeout.ms",
        ConfigType.INT,
        10_000,
        "How long a start waits for each of three attempts to reach the provider.",
        low=1,
    ),
    ConfigKey(
        "penstock.encryption.vault.address",
        ConfigType.STRING,
        None,
        "The address of Vault or OpenBao, as https://HOST:PORT.",
    ),
    ConfigKey(
        "penstock.encryption.vault.token",
        ConfigType.PASSWORD,
        None,
        "The token for Vault, best as `${file:PATH}`. It needs update on MOUNT/encrypt/KEY and "
        "MOUNT/decrypt/KEY.",
    ),
    ConfigKey(
        "penstock.encryption.vault.mount",
        ConfigType.STRING,
        "transit",
        "The path at which Vault's transit engine is mounted.",
    ),
    ConfigKey(
        "penstock.encryption.vault.namespace", ConfigType.STRING, None, "The namespace of Vault, if any."
    ),
    ConfigKey(
        "penstock.encryption.vault.ca.location",
        ConfigType.STRING,
        None,
        "A PEM file with the authorities of Vault's certificate, instead of those of the system.",
    ),
    ConfigKey(
        "penstock.encryption.aws.region",
        ConfigType.STRING,
        None,
        "The region of AWS KMS. Without it, and for credentials, the usual settings of AWS apply.",
    ),
    ConfigKey(
        "penstock.encryption.aws.endpoint",
        ConfigType.STRING,
        None,
        "The address of AWS KMS, if it is not that of the region.",
    ),
]
