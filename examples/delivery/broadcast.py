"""Broadcast: three consumers, a group for each. Every one of them sees everything; in one group they would share it."""

from collections import defaultdict

from common import NUMBERS, Stage, broker, wanted_address
from with_confluent import batches, subscribed


def main() -> None:
    with broker(wanted_address().bootstrap) as bootstrap:
        stage = Stage(bootstrap)
        names = ("billing", "shipping", "statistics")
        consumers = {name: subscribed(bootstrap, f"{name}-{stage.source}", stage.source) for name in names}
        seen: dict[str, list[int]] = defaultdict(list)
        for name, consumer in consumers.items():
            for messages in batches(consumer):
                seen[name] += [int(message.value()) for message in messages]
            consumer.close()
        for name in names:
            everything = seen[name] == list(range(NUMBERS))
            print(f"{name} saw {len(seen[name])} of {NUMBERS} numbers, {'all in order' if everything else 'not all'}")


if __name__ == "__main__":
    main()
