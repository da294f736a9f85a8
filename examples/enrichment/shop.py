"""Orders of a shop and payments for them, made up: most are paid soon, some too late, some never. Pure."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from running import Event

ORDERS = 30
EVERY_S = 5
PATIENCE_S = 60
SECONDS = ORDERS * EVERY_S + 2 * PATIENCE_S


def events(start_s: float, seed: int = 1) -> Iterator[Event]:
    chance = random.Random(seed)
    for number in range(1, ORDERS + 1):
        at_s = start_s + number * EVERY_S
        amount = round(chance.uniform(5, 200), 2)
        yield _order(at_s, f"o{number}", f"c{chance.randint(1, 6)}", amount)
        if number % 7 == 0:
            continue  # never paid
        after_s = chance.randint(2, 40) if number % 11 else PATIENCE_S + 10  # too late
        yield _payment(at_s + after_s, f"o{number}", amount)
    # Time must go on for Spark to know that nothing more will come for an order.
    end_s = start_s + SECONDS
    yield _order(end_s, "the last", "c1", 1.0)
    yield _payment(end_s, "the last", 1.0)


def _order(at_s: float, order_id: str, customer: str, amount: float) -> Event:
    told = {"order_id": order_id, "customer": customer, "amount": amount, "ordered_at": _time(at_s)}
    return Event(at_s, "orders", order_id, json.dumps(told))


def _payment(at_s: float, order_id: str, amount: float) -> Event:
    return Event(at_s, "payments", order_id, f"{order_id},{amount},{_time(at_s)}")


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
