"""Options that change while the broker runs: from the image to whoever uses them."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.core.options import Options, Source
from klamm.metadata.image import BROKER_RESOURCE, EMPTY, Image
from klamm.metadata.live_options import LiveOptions
from klamm.metadata.records import ConfigRecord
from klamm.metadata.replay import replay


class World:
    def __init__(self, **static: str) -> None:
        given = {name.replace("_", "."): value for name, value in static.items()}
        self.live = LiveOptions(1, Options.from_mapping(given))
        self.image: Image = EMPTY
        self.seen: list[Options] = []
        self.live.follow(self.seen.append)

    def set(self, broker: str, **configs: str | None) -> None:
        records: list[Any] = [
            ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=broker, name=name.replace("_", "."), value=value)
            for name, value in configs.items()
        ]
        self.image, delta = replay(self.image, records, offset=self.image.offset + len(records), epoch=0)
        self.live.apply(self.image, delta)


def test_one_brokers_value_goes_before_that_for_all_and_that_before_the_files() -> None:
    world = World(log_retention_ms="1")
    steps = [("", "2", 2), ("1", "3", 3), ("1", None, 2), ("", None, 1)]
    for broker, value, expected in steps:
        world.set(broker, log_retention_ms=value)
        assert world.live.current.get_int("log.retention.ms") == expected
    assert [options.get("log.retention.ms") for options in world.seen] == [1, 2, 3, 2, 1]
    assert world.live.current.source("log.retention.ms") is Source.STATIC


def test_each_layer_is_remembered() -> None:
    world = World(message_max_bytes="1")
    world.set("", message_max_bytes="2")
    world.set("1", message_max_bytes="3")
    layers = world.live.current.layers
    found = [layers[s]["message.max.bytes"] for s in (Source.STATIC, Source.DYNAMIC_DEFAULT, Source.DYNAMIC_BROKER)]
    assert found == [1, 2, 3]
    assert world.live.current.base.get("message.max.bytes") == 1


def test_another_brokers_options_are_none_of_ours() -> None:
    world = World()
    world.set("2", message_max_bytes="3")
    assert len(world.seen) == 1


def test_what_cannot_be_used_is_told_of_and_the_rest_is(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.set("", message_max_bytes="many", log_roll_ms="5", from_a_newer_version="1")
    assert world.live.current.get_int("log.roll.ms") == 5
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 2 and any("message.max.bytes=many" in line for line in errors)


def test_what_has_no_effect_is_told_of_when_it_is_set_and_only_then(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.set("", background_threads="2", log_preallocate="true")
    world.set("", message_max_bytes="5")
    world.set("", background_threads=None)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ["set, but without effect in Klamm: background.threads, log.preallocate"]


def test_a_password_is_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world = World()
    world.set("1", **{"listener.name.a.ssl.key.password": "secret"})
    assert "listener.name.a.ssl.key.password=[hidden]" in caplog.text and "secret" not in caplog.text
