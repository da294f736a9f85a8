"""Orders joined with customers, who stand in a file, and with payments, which are a stream of their own.

.venv/bin/python examples/enrichment/run.py

A few minutes in a shop, thirty times as fast. It ends by itself when all orders are settled, or with Ctrl-C.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from running import show
from shop import ORDERS, SECONDS, events

from klamm import ConsumerRecord

TOPICS = {"orders": 2, "payments": 2, "orders.enriched": 1, "orders.settled": 1}
SPEED = 30.0


class Settled:
    def __init__(self) -> None:
        self._paid = 0
        self._unpaid = 0

    @property
    def is_enough(self) -> bool:
        return self._paid + self._unpaid >= ORDERS

    @property
    def summary(self) -> str:
        return f"{ORDERS} orders: {self._paid} were paid within a minute, {self._unpaid} were not."

    def line(self, record: ConsumerRecord) -> str:
        order = json.loads(record.value or b"{}")
        after_s = order.get("paid_after_s")
        who = f"{order['name']} ({order['tier']}, {order['country']})"
        if order["order_id"].startswith("o"):
            self._paid += after_s is not None
            self._unpaid += after_s is None
        outcome = "not paid within a minute" if after_s is None else f"paid after {after_s} s"
        return f"{order['order_id']:<8} {order['amount']:>8.2f}  {who:<28} {outcome}"


def main() -> None:
    start_s = time.time() // 1 - SECONDS
    show(Path(__file__).parent, TOPICS, list(events(start_s)), "orders.settled", Settled(), SPEED)


if __name__ == "__main__":
    main()
