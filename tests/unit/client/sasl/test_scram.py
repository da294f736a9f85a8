"""SCRAM against the example of RFC 7677, and against brokers that cheat."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from klamm.client import AuthenticationFailed
from klamm.client.sasl.scram import MAX_ITERATIONS, Scram

NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
VERIFIER = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(**options: object) -> Scram:
    return Scram("SCRAM-SHA-256", "user", "pencil", NONCE, **options)  # type: ignore[arg-type]


def test_the_example_of_the_rfc() -> None:
    mechanism = client()
    assert mechanism.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert mechanism.next(CHALLENGE) == PROOF
    assert mechanism.next(VERIFIER) is None


def test_a_salted_password_is_made_once_and_made_anew_for_another_salt() -> None:
    salted: dict[tuple[bytes, int], bytes] = {}
    for _ in range(2):
        assert client(salted=salted).next(CHALLENGE) == PROOF
        assert len(salted) == 1
    client(salted=salted).next(CHALLENGE.replace(b"W22Z", b"X22Z"))
    assert len(salted) == 1
    assert client(salted=salted).next(CHALLENGE) == PROOF


def test_names_with_marks_are_escaped_and_tokens_say_that_they_are() -> None:
    assert Scram("SCRAM-SHA-512", "a=b,c", "p", "N").first() == b"n,,n=a=3Db=2Cc,r=N"
    assert Scram("SCRAM-SHA-512", "id", "p", "N", is_token=True).first() == b"n,,n=id,r=N,tokenauth=true"


def test_with_sha_512_a_broker_that_knows_the_password_accepts_the_proof() -> None:
    mechanism = Scram("SCRAM-SHA-512", "user", "pencil", NONCE)
    final = mechanism.next(CHALLENGE)
    assert final is not None
    bare, _, proof = final.rpartition(b",p=")
    message = b",".join((mechanism.first()[3:], CHALLENGE, bare))
    salted = hashlib.pbkdf2_hmac("sha512", b"pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    stored = hashlib.sha512(hmac.digest(salted, b"Client Key", "sha512")).digest()
    signature = hmac.digest(stored, message, "sha512")
    key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
    assert hashlib.sha512(key).digest() == stored
    verifier = hmac.digest(hmac.digest(salted, b"Server Key", "sha512"), message, "sha512")
    assert mechanism.next(b"v=" + base64.b64encode(verifier)) is None


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (CHALLENGE.replace(b"r=rO", b"r=xO"), "wrong nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "wrong nonce"),
        (CHALLENGE.replace(b"4096", b"4095"), "4095 iterations"),
        (CHALLENGE.replace(b"4096", b"%d" % (MAX_ITERATIONS + 1)), "iterations"),
        (CHALLENGE.replace(b"4096", b"many"), "iterations"),
        (CHALLENGE.replace(b"s=W22Z", b"s=!"), "not SCRAM's"),
        (b"", "not SCRAM's"),
        (b"e=unknown-user", "refused: unknown-user"),
    ],
)
def test_a_challenge_that_is_none_is_refused(said: bytes, why: str) -> None:
    with pytest.raises(AuthenticationFailed, match=why):
        client().next(said)


@pytest.mark.parametrize("said", [b"v=", b"v=AAAA", VERIFIER.replace(b"6rri", b"6rrj"), b"x=1"])
def test_a_broker_that_does_not_know_the_password_is_not_believed(said: bytes) -> None:
    mechanism = client()
    mechanism.next(CHALLENGE)
    with pytest.raises(AuthenticationFailed, match="does not know the password"):
        mechanism.next(said)
