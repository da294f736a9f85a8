"""Every broker option of Kafka 4.3 that changes nothing here (yet): known, so that a Kafka file loads and a slip of the
pen is told from a name that Kafka has.

This package must never be imported by a start that meets none of them: whoever needs it imports it there and then.
"""

from __future__ import annotations

from klamm.core.options.known import cluster, groups, security, sharing, traffic
from klamm.core.options.option import Option, Update

KNOWN_OPTIONS = {
    option.name: option
    for option in (*cluster.OPTIONS, *traffic.OPTIONS, *groups.OPTIONS, *sharing.OPTIONS, *security.OPTIONS)
}

# What Kafka lets a single listener have for itself, beside the security options.
_OF_A_LISTENER = ("max.connections", "max.connection.creation.rate", "num.network.threads", "connections.max.reauth.ms")


def for_listener(name: str) -> Option | None:
    """`listener.name.LISTENER.[MECHANISM.]OPTION` as an option of its own: what it stands for, without effect."""
    _, _, rest = name.removeprefix("listener.name.").partition(".")
    of_all = _OF_A_LISTENER[:3]
    while rest:
        option = KNOWN_OPTIONS.get(rest)
        if rest in _OF_A_LISTENER or (option is not None and rest.startswith(("ssl.", "sasl.", "principal."))):
            return _named(name, rest, option, Update.CLUSTER_WIDE if rest in of_all else Update.PER_BROKER)
        _, _, rest = rest.partition(".")
    return None


def _named(name: str, base: str, option: Option | None, update: Update) -> Option:
    from klamm.core.options.brokers import BROKER_OPTIONS

    known = BROKER_OPTIONS[base] if option is None else option
    return Option(
        name,
        known.kind,
        known.default,
        f"{base} for one listener alone.",
        at_least=known.at_least,
        at_most=known.at_most,
        choices=known.choices,
        update=update,
        honoured=False,
    )
