from __future__ import annotations

import pytest

from klamm.core.options import (
    ListenerSpec,
    OptionError,
    Options,
    listener_warnings,
    parse_listeners,
    split_address,
)


def listeners(text, **more):
    given = {"listeners": text, **{name.replace("_", "."): value for name, value in more.items()}}
    return parse_listeners(Options.from_mapping(given), host_name="box.example")


def test_by_default_only_this_machine_is_served():
    assert parse_listeners(Options.from_mapping()) == (
        ListenerSpec("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT", "127.0.0.1", 9092),
    )


def test_several_listeners_with_addresses_of_their_own():
    inside, outside = listeners(
        "inside://10.0.0.1:9092,OUTSIDE://:9093",
        advertised_listeners="OUTSIDE://kafka.example.org:19093",
        listener_security_protocol_map="INSIDE:PLAINTEXT,outside:plaintext",
    )
    assert inside == ListenerSpec("INSIDE", "10.0.0.1", 9092, "PLAINTEXT", "10.0.0.1", 9092)
    assert outside == ListenerSpec("OUTSIDE", "", 9093, "PLAINTEXT", "kafka.example.org", 19093)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_a_listener_on_every_interface_advertises_the_name_of_the_machine(host):
    (spec,) = listeners(f"PLAINTEXT://{host}:9092")
    assert (spec.advertised_host, spec.advertised_port) == ("box.example", 9092)


def test_ipv6_addresses_stand_in_brackets():
    (spec,) = listeners("PLAINTEXT://[::1]:9092")
    assert (spec.host, spec.advertised_host) == ("::1", "::1")
    assert str(spec) == "PLAINTEXT://[::1]:9092"


def test_a_free_port_is_advertised_once_it_is_known():
    (spec,) = listeners("PLAINTEXT://127.0.0.1:0")
    assert spec.bound(4711)[2:] == (4711, "PLAINTEXT", "127.0.0.1", 4711)
    (told,) = listeners("PLAINTEXT://127.0.0.1:0", advertised_listeners="PLAINTEXT://a:80")
    assert told.bound(4711).advertised_port == 80


def test_listeners_for_kafkas_controllers_are_passed_over():
    (spec,) = listeners("PLAINTEXT://:9092,CONTROLLER://:9093", controller_listener_names="CONTROLLER")
    assert spec.name == "PLAINTEXT"


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        ("127.0.0.1:9092", {}, "is not NAME://HOST:PORT"),
        ("PLAINTEXT://127.0.0.1", {}, "is not HOST:PORT"),
        ("PLAINTEXT://h:65536", {}, "is not HOST:PORT"),
        ("PLAINTEXT://h:-1", {}, "is not HOST:PORT"),
        ("PLAINTEXT://::1:9092", {}, "in brackets"),
        ("PLAINTEXT://a:1,PLAINTEXT://b:2", {}, "twice"),
        ("", {}, "is empty"),
        ("OTHER://a:1", {}, "has no protocol"),
        ("SSL://a:1", {}, "asks for SSL"),
        ("SASL_PLAINTEXT://a:1", {}, "asks for SASL_PLAINTEXT"),
        ("PLAINTEXT://a:1", {"advertised_listeners": "OTHER://a:1"}, "not among listeners"),
        ("PLAINTEXT://a:1", {"advertised_listeners": "PLAINTEXT://0.0.0.0:1"}, "cannot connect to 0.0.0.0"),
        ("PLAINTEXT://a:1", {"listener_security_protocol_map": "PLAINTEXT:TELNET"}, "is not NAME:PROTOCOL"),
        (
            "A://h:1,B://h:1",
            {"listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT"},
            "A and B both ask for h:1",
        ),
    ],
)
def test_what_cannot_be_listened_on_is_refused_in_one_sentence(text, more, message):
    with pytest.raises(OptionError) as caught:
        listeners(text, **more)
    assert message in str(caught.value)


def test_an_address_is_host_and_port():
    assert split_address("localhost:9092") == ("localhost", 9092)
    assert split_address(":9092") == ("", 9092)
    assert split_address("[fe80::1]:1") == ("fe80::1", 1)


def test_listening_everywhere_without_an_address_for_others_is_worth_a_warning():
    def warnings(**given):
        options = Options.from_mapping({name.replace("_", "."): value for name, value in given.items()})
        return listener_warnings(options, parse_listeners(options))

    (warning,) = warnings(listeners="PLAINTEXT://0.0.0.0:9092")
    assert "clients are told localhost:9092" in warning
    assert "advertised.listeners" in warning
    assert not warnings(listeners="PLAINTEXT://0.0.0.0:9092", advertised_listeners="PLAINTEXT://localhost:9092")
    assert not warnings(listeners="PLAINTEXT://10.0.0.1:9092")
