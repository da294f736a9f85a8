"""The features that brokers of this version have, by the names that Kafka gave them, and their levels.

A broker names them when it registers. Which level is in use is in the image: all brokers use the same one.
"""

from __future__ import annotations

GROUP_VERSION = "group.version"
"""1: consumer groups may use the protocol of KIP-848."""

TRANSACTION_VERSION = "transaction.version"
"""1: transactions are kept in flexible records. 2: each transaction has an epoch of its own (KIP-890)."""

SUPPORTED = ((GROUP_VERSION, 0, 1), (TRANSACTION_VERSION, 0, 2))
"""Name, lowest and highest level. A new cluster uses the highest ones."""
