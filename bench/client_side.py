"""One client at one piece of work, in a process of its own; `clients.py` starts it and reads its line of results.

    python bench/client_side.py confluent-kafka consume --to 127.0.0.1:9092 --topic t --records 1000000

The same work for each client, by the call that its documentation has for it. All produce with the same guarantees
(idempotent, acks=all), lingering and sizes of batches; what else is not a default says why.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

from client_common import Result
from client_consume import (
    aiokafka_consume,
    confluent_consume,
    kafka_python_consume,
    klamm_arrow,
    klamm_consume,
    klamm_decode,
)
from client_produce import (
    aiokafka_latency,
    aiokafka_produce,
    aiokafka_produce_batches,
    confluent_latency,
    confluent_memory,
    confluent_produce,
    confluent_produce_batches,
    kafka_python_latency,
    kafka_python_produce,
    klamm_latency,
    klamm_memory,
    klamm_memory_one_by_one,
    klamm_produce,
    klamm_produce_one_by_one,
    klamm_through,
)

WORK: dict[str, dict[str, Callable[[Any], Awaitable[Result]]]] = {
    "klamm": {
        "produce": klamm_produce,
        "produce-one": klamm_produce_one_by_one,
        "consume": klamm_consume(touch=False),
        "consume-values": klamm_consume(touch=True),
        "arrow": klamm_arrow,
        "decode": klamm_decode,
        "latency": klamm_latency,
        "memory": klamm_memory,
        "memory-one": klamm_memory_one_by_one,
        "through": klamm_through,
    },
    "aiokafka": {
        "produce": aiokafka_produce,
        "produce-batches": aiokafka_produce_batches,
        "consume": aiokafka_consume(touch=False),
        "consume-values": aiokafka_consume(touch=True),
        "latency": aiokafka_latency,
    },
    "kafka-python": {
        "produce": kafka_python_produce,
        "consume": kafka_python_consume(touch=False),
        "consume-values": kafka_python_consume(touch=True),
        "latency": kafka_python_latency,
    },
    "confluent-kafka": {
        "produce": confluent_produce,
        "produce-batches": confluent_produce_batches,
        "consume": confluent_consume(touch=False),
        "consume-values": confluent_consume(touch=True),
        "latency": confluent_latency,
        "memory": confluent_memory,
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("client", choices=WORK)
    parser.add_argument("work")
    parser.add_argument("--to", required=True, help="the broker's address")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, required=True)
    given = parser.parse_args()
    result = asyncio.run(WORK[given.client][given.work](given))  # type: ignore[arg-type]
    print(json.dumps(result), flush=True)
    os._exit(0)  # what a client would do at its end is not measured, and takes seconds with some


if __name__ == "__main__":
    main()
