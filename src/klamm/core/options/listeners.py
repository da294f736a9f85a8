"""Listener strings, as in `listeners=PLAINTEXT://127.0.0.1:9092,OUTSIDE://[::]:9093`, made into addresses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from klamm.core.options.option import OptionError
from klamm.core.options.options import Options

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SERVED_PROTOCOLS = ("PLAINTEXT",)  # grows with security; never serve a listener in the clear that asked for more

_EVERY_INTERFACE = ("", "0.0.0.0", "::")


class ListenerSpec(NamedTuple):
    """One listener. Host "" listens on every interface, port 0 on a free port."""

    name: str
    host: str
    port: int
    protocol: str
    advertised_host: str
    advertised_port: int

    def bound(self, port: int) -> ListenerSpec:
        """The listener once it listens: a free port is known now, and advertised unless another one was asked for."""
        return self._replace(port=port, advertised_port=self.advertised_port or port)

    def __str__(self) -> str:
        return f"{self.name}://{_with_port(self.host, self.port)}"


def parse_listeners(options: Options, *, host_name: str = "localhost") -> tuple[ListenerSpec, ...]:
    """The broker's listeners. `host_name` is advertised for a listener on every interface that names no address."""
    protocols = _protocol_map(options)
    controllers = {name.upper() for name in options.get_list("controller.listener.names")}
    addresses = _addresses("listeners", options.get_list("listeners"))
    advertised = _addresses("advertised.listeners", options.get_list("advertised.listeners"))
    for name in advertised:
        if name not in addresses:
            raise OptionError(
                f"advertised.listeners names {name}, which is not among listeners ({', '.join(addresses)})"
            )
    specs = []
    for name, (host, port) in addresses.items():
        if name in controllers:
            continue
        told_host, told_port = advertised.get(name, (host, port))
        if name in advertised and told_host in _EVERY_INTERFACE[1:]:
            raise OptionError(f"advertised.listeners: clients cannot connect to {told_host}; give an address or a name")
        if told_host in _EVERY_INTERFACE:
            told_host = host_name
        specs.append(ListenerSpec(name, host, port, _protocol(name, protocols), told_host, told_port))
    if not specs:
        raise OptionError("listeners is empty: give at least one, such as PLAINTEXT://127.0.0.1:9092")
    _refuse_shared_ports(specs)
    return tuple(specs)


def listener_warnings(options: Options, specs: Iterable[ListenerSpec]) -> list[str]:
    """What works on this machine and will puzzle everybody else."""
    advertised = _addresses("advertised.listeners", options.get_list("advertised.listeners"))
    return [
        f"listener {spec.name} is open on every interface, but clients are told "
        f"{_with_port(spec.advertised_host, spec.advertised_port)}; for other machines set advertised.listeners"
        for spec in specs
        if spec.host in _EVERY_INTERFACE and spec.name not in advertised
    ]


def _protocol(name: str, protocols: dict[str, str]) -> str:
    protocol = protocols.get(name)
    if protocol is None:
        raise OptionError(f"listener {name} has no protocol; add {name}:PLAINTEXT to listener.security.protocol.map")
    if protocol not in SERVED_PROTOCOLS:
        raise OptionError(f"listener {name} asks for {protocol}, which this version does not have; use PLAINTEXT")
    return protocol


def _protocol_map(options: Options) -> dict[str, str]:
    protocols = {}
    for text in options.get_list("listener.security.protocol.map"):
        name, colon, protocol = text.partition(":")
        protocol = protocol.strip().upper()
        if not colon or protocol not in PROTOCOLS:
            raise OptionError(
                f"listener.security.protocol.map: {text!r} is not NAME:PROTOCOL with {', '.join(PROTOCOLS)}"
            )
        protocols[name.strip().upper()] = protocol
    return protocols


def _addresses(option: str, texts: tuple[str, ...]) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for text in texts:
        name, separator, address = text.partition("://")
        name = name.strip().upper()
        if not separator or not name:
            raise OptionError(f"{option}: {text!r} is not NAME://HOST:PORT")
        if name in found:
            raise OptionError(f"{option}: the name {name} is there twice")
        try:
            found[name] = split_address(address)
        except OptionError as error:
            raise OptionError(f"{option}: {error}") from None
    return found


def split_address(text: str) -> tuple[str, int]:
    """HOST:PORT, [IPV6]:PORT or :PORT as host and port."""
    if "://" in text:
        raise OptionError(f"{text!r}: write HOST:PORT, without {text.partition('://')[0]}://")
    host, colon, port_text = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or "[" in host or "]" in host:
        raise OptionError(f"{text!r}: write an IPv6 address in brackets, as in [::1]:9092")
    if not colon or not (port_text.isascii() and port_text.isdigit()) or int(port_text) > 65535:
        raise OptionError(f"{text!r} is not HOST:PORT, with a port from 0 to 65535")
    return host, int(port_text)


def _refuse_shared_ports(specs: list[ListenerSpec]) -> None:
    taken: dict[tuple[str, int], str] = {}
    for spec in specs:
        if not spec.port:
            continue
        other = taken.setdefault((spec.host, spec.port), spec.name)
        if other != spec.name:
            raise OptionError(f"listeners: {other} and {spec.name} both ask for {_with_port(spec.host, spec.port)}")


def _with_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
