"""SCRAM (RFC 5802) as Kafka has it: SHA-256 or SHA-512, without channel binding; a delegation token logs in like a
user with `tokenauth`. Proves that we know the password without sending it, and that the broker knows it too.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

from klamm.client.errors import AuthenticationFailed

DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MIN_ITERATIONS: Final = 4096
"""RFC 7677's least; with fewer, who listens could try passwords too quickly."""
MAX_ITERATIONS: Final = 1_000_000
"""About half a second of work: a broker must not be able to keep a client busy for ever. Kafka allows 16384."""
_NO_BINDING: Final = b"n,,"


class Scram:
    """`nonce` is random text that was never used before. `salted` remembers, for the whole client, what passwords
    become, because that takes milliseconds."""

    def __init__(
        self, name: str, username: str, password: str, nonce: str, *, is_token: bool = False,
        salted: dict[tuple[bytes, int], bytes] | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self._digest = DIGESTS[name]
        self._password = password.encode()
        self._nonce = nonce
        self._salted = {} if salted is None else salted
        user = username.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={user},r={nonce}{',tokenauth=true' if is_token else ''}".encode()
        self._expected: bytes | None = None

    def first(self) -> bytes:
        return _NO_BINDING + self._first

    def next(self, said: bytes) -> bytes | None:
        fields = _fields(said)
        if b"e" in fields:
            raise AuthenticationFailed(f"the broker refused: {fields[b'e'].decode(errors='replace')}")
        if self._expected is None:
            return self._prove(said, fields)
        if not hmac.compare_digest(_unbase64(fields.get(b"v")), self._expected):
            raise AuthenticationFailed("the broker does not know the password: it may not be who it says")
        return None

    def _prove(self, said: bytes, fields: dict[bytes, bytes]) -> bytes:
        nonce, salt, iterations = fields.get(b"r", b""), _unbase64(fields.get(b"s")), fields.get(b"i", b"")
        if not nonce.startswith(self._nonce.encode()) or len(nonce) == len(self._nonce):
            raise AuthenticationFailed("the broker answered with a wrong nonce")
        if not iterations.isdigit() or not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
            raise AuthenticationFailed(f"the broker asks for {iterations.decode(errors='replace')} iterations")
        salted = self._salt(salt, int(iterations))
        bare_final = b"c=" + base64.b64encode(_NO_BINDING) + b",r=" + nonce
        message = b",".join((self._first, said, bare_final))
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._digest, client_key).digest(), message)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._expected = self._hmac(self._hmac(salted, b"Server Key"), message)
        return bare_final + b",p=" + base64.b64encode(proof)

    def _salt(self, salt: bytes, iterations: int) -> bytes:
        known = self._salted.get((salt, iterations))
        if known is None:
            self._salted.clear()  # one at a time: it changes when the password does
            known = hashlib.pbkdf2_hmac(self._digest, self._password, salt, iterations)
            self._salted[salt, iterations] = known
        return known

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._digest)


def _fields(said: bytes) -> dict[bytes, bytes]:
    """`a=1,b=2`; the first of each name counts."""
    found: dict[bytes, bytes] = {}
    for part in said.split(b","):
        name, is_one, value = part.partition(b"=")
        if not is_one:
            raise AuthenticationFailed("the broker's answer is not SCRAM's")
        found.setdefault(name, value)
    return found


def _unbase64(text: bytes | None) -> bytes:
    try:
        return base64.b64decode(text or b"", validate=True)
    except binascii.Error:
        raise AuthenticationFailed("the broker's answer is not SCRAM's") from None
