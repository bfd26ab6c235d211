"""Configs of cluster links. A link is a config resource of its own."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from penstock.model.addresses import parse_bootstrap
from penstock.model.config.descriptions import ConfigEntry, ConfigSynonym
from penstock.model.config.keys import ConfigKey, ConfigSource, ConfigType, table
from penstock.model.errors import InvalidConfig, InvalidRequest

__all__ = [
    "LINK_KEYS",
    "check_link",
    "check_link_name",
    "describe_link",
    "is_secret_of_link",
    "link_trust_changes",
]

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)
_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{0,100}", re.ASCII)
_PATTERN: Final = re.compile(r"!?[A-Za-z0-9._*?-]+", re.ASCII)
_USER: Final = re.compile(r"!?[^*?!,\s][^!,\s]*")
#: how the names of the security settings of a link begin: those of Kafka's clients
_SECURITY: Final = ("security.protocol", "sasl.", "ssl.")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
#: the security settings that may be shown; all others are secrets, or may have one in them
_SHOWN: Final = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.username",
        "sasl.oauthbearer.token.endpoint.url",
        "ssl.truststore.location",
        "ssl.truststore.certificates",
        "ssl.truststore.type",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.keystore.certificate.chain",
        "ssl.endpoint.identification.algorithm",
        "ssl.enabled.protocols",
        "ssl.cipher.suites",
    }
)


def _check_patterns(patterns: tuple[str, ...]) -> str | None:
    wrong = [each for each in patterns if not _PATTERN.fullmatch(each)]
    return f"{wrong[0]!r} is not a name with * and ?, or ! and such a name" if wrong else None


def _check_users(patterns: tuple[str, ...]) -> str | None:
    """The source of a link with `*` could throttle all users of this cluster."""
    wrong = [each for each in patterns if not _USER.fullmatch(each)]
    return f"{wrong[0]!r} is not a user with * and ? behind a part of the name" if wrong else None


_LIST, _B, _S, _I = ConfigType.LIST, ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
LINK_KEYS: Final = table(
    [
        ConfigKey("bootstrap.servers", _LIST, (), "Addresses of brokers of the source cluster."),
        ConfigKey(
            "topics",
            _LIST,
            (),
            "The topics that are mirrored: names with * and ?, and with ! before those that are not.",
            check=_check_patterns,
        ),
        ConfigKey(
            "groups",
            _LIST,
            (),
            "The consumer groups whose committed offsets are mirrored, as in `topics`.",
            check=_check_patterns,
        ),
        ConfigKey(
            "acls",
            _B,
            False,
            "Whether ACLs of the source are mirrored: those about topics and groups that are mirrored.",
        ),
        ConfigKey(
            "quotas",
            _LIST,
            (),
            "The users whose quotas are mirrored, as in `topics`. Each pattern begins with a part of a name.",
            check=_check_users,
        ),
        ConfigKey(
            "prefix", _S, "", "What the names of mirrored topics begin with, before the name at the source."
        ),
        ConfigKey("paused", _B, False, "Whether the link is paused: it does not connect to the source."),
        ConfigKey(
            "log.start",
            _S,
            "expired",
            "Which moves of a log start at the source are followed. `expired` follows those below which the "
            "retention of the mirrored topic has expired, too. `source` follows all of them, also after "
            "DeleteRecords and after a loss of segments.",
            choices=("expired", "source"),
        ),
        ConfigKey(
            "interval.ms",
            _I,
            2000,
            "How often topics, partitions, configs and committed offsets are compared with the source.",
            low=100,
        ),
        ConfigKey(
            "source.cluster.id",
            _S,
            "",
            "The id of the source cluster. Brokers set it when they first connect.",
        ),
        ConfigKey(
            "acls.made",
            _LIST,
            (),
            "Checksums of the ACLs that the link has made, and may remove. Brokers set it.",
        ),
        ConfigKey(
            "quotas.made",
            _LIST,
            (),
            "Checksums of the quotas that the link has set, and may change. Brokers set it.",
        ),
    ]
)


def check_link_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} cannot be the name of a link: use up to 100 letters, digits, '.', '_' and '-'"
        )


def check_link(values: Mapping[str, str]) -> None:
    """Raise InvalidConfig if a link cannot have `values`; none at all removes it."""
    if not values:
        return
    for name, text in values.items():
        key = LINK_KEYS.get(name)
        if key is not None:
            key.parse(text)
        elif not name.startswith(_SECURITY):
            raise InvalidConfig(f"Unknown config of a link: {name}")
    if not values.get("bootstrap.servers"):
        raise InvalidConfig("a link needs bootstrap.servers: the addresses of brokers of its source")
    try:
        parse_bootstrap(values["bootstrap.servers"])
    except ValueError as e:
        raise InvalidConfig(f"bootstrap.servers of a link: {e}") from e
    if not _PREFIX.fullmatch(values.get("prefix", "")):
        raise InvalidConfig(f"prefix {values['prefix']!r} cannot begin the name of a topic")
    protocol = values.get("security.protocol", "PLAINTEXT")
    if protocol not in _PROTOCOLS:
        raise InvalidConfig(f"security.protocol is {protocol}: use one of {', '.join(_PROTOCOLS)}")


def is_secret_of_link(name: str) -> bool:
    """Whether the value of a link's config must not be shown."""
    return name not in LINK_KEYS and name not in _SHOWN


def link_trust_changes(
    current: Mapping[str, str], values: Mapping[str, str], named: Collection[str]
) -> list[str]:
    """The changes of a link that would use, or give away, secrets that the user may not know.

    These are files of the brokers, which they use, or send as a token; and another source, or weaker checks
    of it, for secrets that the link has. The request knows the values of the configs that it sets: `named`.
    """
    changed = [name for name in {**current, **values} if current.get(name) != values.get(name)]
    found = [name for name in changed if name in values and _is_file(name, values[name])]
    kept = any(
        current.get(name) == text and name not in named and (is_secret_of_link(name) or _is_file(name, text))
        for name, text in values.items()
    )
    if kept:
        connecting = (name for name in changed if name == "bootstrap.servers" or name not in LINK_KEYS)
        found += [name for name in connecting if not is_secret_of_link(name) and name not in found]
    return found


def _is_file(name: str, value: str) -> bool:
    """Whether a security setting names a file."""
    return name not in LINK_KEYS and (
        name.endswith((".location", ".file", ".path")) or value.strip().lower().startswith("file:")
    )


def describe_link(values: Mapping[str, str], names: Collection[str] | None = None) -> list[ConfigEntry]:
    """The configs of a link; those that were not set have their defaults. None if there is no link."""
    if not values:
        return []
    shown = dict.fromkeys([*LINK_KEYS, *values])
    entries = []
    for name in shown:
        if names is not None and name not in names:
            continue
        key = LINK_KEYS.get(name)
        default = None if key is None else key.format(key.default)
        source = ConfigSource.DYNAMIC_TOPIC if name in values else ConfigSource.DEFAULT
        value = values.get(name, default)
        kind, about = (
            (ConfigType.STRING, "A security setting.") if key is None else (key.type, key.documentation)
        )
        secret = is_secret_of_link(name)
        entries.append(
            ConfigEntry(
                name,
                value,
                source,
                ConfigType.PASSWORD if secret else kind,
                False,
                secret,
                about,
                (ConfigSynonym(name, value, source),),
            )
        )
    return entries
