"""Our bytes are the bytes of other implementations, for random messages of every table and version."""

from __future__ import annotations

from random import Random

import pytest
from wire_messages import all_messages, all_versions, random_message
from wire_oracles import kafka_python_again, kio_bytes, kio_type

from klamm.wire import Struct, decode, encode, versions_of
from klamm.wire.messages import coordinator

ROUNDS = 12


@pytest.mark.parametrize("message", all_messages(), ids=lambda message: message.__name__)
def test_random_messages_are_encoded_as_others_do_and_come_back_equal(message: type[Struct]) -> None:
    for version in versions_of(message):
        rng = Random(f"{message.__name__} {version}")
        for _ in range(ROUNDS):
            sent = random_message(rng, message, version)
            data = encode(sent, version)
            assert decode(message, data, version) == sent
            if kio_type(message, version) is not None:
                assert data == kio_bytes(sent, version), (version, sent)
            assert kafka_python_again(message, version, data) in (data, None), (version, sent)


def test_only_the_records_of_the_coordinators_are_known_to_no_other_implementation() -> None:
    unknown = {message.__name__ for message, version in all_versions() if kio_type(message, version) is None}
    records = {name for name in vars(coordinator) if name.endswith(("Key", "Value"))}
    assert unknown == records
    assert len(records) == 20


def test_kafka_python_knows_most_of_the_rest_too() -> None:
    """So that a change over there cannot quietly turn the comparison into nothing."""
    known = [
        (message, version)
        for message, version in all_versions()
        if kafka_python_again(message, version, encode(random_message(Random(1), message, version), version))
    ]
    assert len(known) > 450
