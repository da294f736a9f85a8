"""Broadcast: three consumers, a group for each. Every one of them sees everything; in one group they would share it."""

from contextlib import ExitStack

from common import NUMBERS, Stage, broker, wanted_address
from with_klamm import batches, member


def main() -> None:
    with broker(wanted_address().bootstrap) as bootstrap, ExitStack() as opened:
        stage = Stage(bootstrap)
        names = ("billing", "shipping", "statistics")
        consumers = {
            name: opened.enter_context(member(bootstrap, f"{name}-{stage.source}", stage.source)) for name in names
        }
        for name, consumer in consumers.items():
            seen = [int(record.value) for records in batches(consumer) for record in records]
            everything = seen == list(range(NUMBERS))
            print(f"{name} saw {len(seen)} of {NUMBERS} numbers, {'all in order' if everything else 'not all'}")


if __name__ == "__main__":
    main()
