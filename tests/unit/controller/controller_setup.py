"""Images with brokers, and a controller on a simulated disk."""

from __future__ import annotations

from random import Random

from klamm.controller import BrokerRegistration, Controller
from klamm.core.options import Options
from klamm.metadata.image import EMPTY, BrokerEndpoint
from klamm.metadata.local import LocalStore
from klamm.metadata.publisher import Publisher
from klamm.metadata.records import BrokerRecord
from klamm.metadata.replay import replay


def image_with(*brokers, fenced=()):
    records = [BrokerRecord(id=broker, epoch=broker, fenced=broker in fenced) for broker in brokers]
    return play(EMPTY, records)


def play(image, records):
    return replay(image, records, offset=image.offset + len(records), epoch=1)[0]


class Ids:
    """Topic ids 2, 3, 4 …"""

    def __init__(self):
        self.last = 1

    def __call__(self):
        self.last += 1
        return self.last.to_bytes(16)


def arguments(**options):
    given = {name.replace("_", "."): value for name, value in options.items()}
    return {"options": Options.from_mapping(given), "rng": Random(1), "new_id": Ids()}


class Broker:
    """What of a broker has to do with metadata: store, publisher, controller."""

    def __init__(self, env, **store_options):
        self.env = env
        self.store = LocalStore(env, "data/metadata", **store_options)

    async def start(self, *, clean=True, **options):
        self.env.files.make_dirs("data")
        self.env.files.sync_dir(".")  # the data folder itself is not the store's
        self.publisher = Publisher(await self.store.load())
        self.store.follow(self.publisher.replay, self.publisher.reset)
        given = {name.replace("_", "."): value for name, value in options.items()}
        self.controller = Controller(self.env, self.store, self.publisher, Options.from_mapping(given))
        assert await self.controller.start(1)
        endpoints = [BrokerEndpoint("PLAINTEXT", "localhost", 9092)]
        self.epoch = await self.controller.register_broker(
            BrokerRegistration(1, self.env.uuid(), endpoints, clean=clean)
        )
        return self

    @property
    def image(self):
        return self.publisher.image

    async def stop(self):
        await self.controller.close()
        await self.store.close()
