"""kcat with Debian's librdkafka 2.0.2: an old client that decides by ApiVersions whether it may compress."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from support.process import BrokerProcess
from support.stored import CODEC_NAMES, stored_codecs


@pytest.fixture
def kcat(tool: Callable[[str, str], str], broker: BrokerProcess) -> Callable[..., str]:
    program = tool("kcat", "Debian's package kcat")

    def run(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [program, "-b", broker.bootstrap, *arguments], input=stdin, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_every_codec_round_trips(broker: BrokerProcess, topic: str, codec: str, kcat: Callable[..., str]) -> None:
    lines = "".join(f"key{i}:value value value value value {i}\n" for i in range(1000))
    kcat("-P", "-t", topic, "-K", ":", "-z", codec, "-X", "linger.ms=50", stdin=lines)
    assert kcat("-C", "-t", topic, "-K", ":", "-e", "-q", "-o", "beginning") == lines
    assert codec in stored_codecs(broker.data, topic)


def test_metadata_lists_broker_and_topics(broker: BrokerProcess, topic: str, kcat: Callable[..., str]) -> None:
    kcat("-P", "-t", topic, stdin="x\n")
    listing = kcat("-L")
    assert f'topic "{topic}" with 1 partitions' in listing
    assert broker.bootstrap in listing


def test_reading_starts_at_an_offset_from_the_end(topic: str, kcat: Callable[..., str]) -> None:
    kcat("-P", "-t", topic, stdin="a\nb\nc\n")
    assert kcat("-C", "-t", topic, "-e", "-q", "-o", "-1") == "c\n"
    assert kcat("-C", "-t", topic, "-e", "-q", "-o", "1") == "b\nc\n"


def test_a_group_goes_on_where_it_was(topic: str, kcat: Callable[..., str]) -> None:
    group = ["-G", topic, "-e", "-q", "-X", "auto.offset.reset=earliest", topic]
    kcat("-P", "-t", topic, stdin="a\nb\n")
    assert kcat(*group) == "a\nb\n"
    kcat("-P", "-t", topic, stdin="c\n")
    assert kcat(*group) == "c\n"
