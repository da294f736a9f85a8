"""Logging in with SASL: what a client says in each mechanism. No I/O: `client/authentication` carries the messages.

    mechanism = Scram("SCRAM-SHA-256", "alice", "secret", nonce)
    send(mechanism.first())                      # then, for every answer of the broker:
    while (said := mechanism.next(received())) is not None: send(said)

`next` raises `AuthenticationFailed` when the broker is not who it should be, or says that we are not.
"""

from __future__ import annotations

from typing import Protocol


class Mechanism(Protocol):
    @property
    def name(self) -> str: ...

    def first(self) -> bytes:
        """What the client begins with."""

    def next(self, said: bytes) -> bytes | None:
        """What it answers; None when all is said."""
