from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from klamm.client import AuthenticationFailed
from klamm.client.sasl.simple import OAuthBearer, Plain
from klamm.client.sasl.tokens import USED_SHARE, OAuthToken, Tokens, from_endpoint, unsecured
from klamm.core.env import Env
from klamm.core.env.real import real_env


@pytest.fixture
def env() -> Iterator[Env]:
    env = real_env()
    yield env
    env.executor.close()


class FixedClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def time_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now


def test_what_plain_and_oauthbearer_say() -> None:
    assert Plain("alice", "secret").first() == b"\0alice\0secret"
    assert Plain("alice", "secret").next(b"") is None
    assert OAuthBearer("a.b.c").first() == b"n,,\x01auth=Bearer a.b.c\x01\x01"
    assert OAuthBearer("a.b.c", {"logicalCluster": "x"}).first() == (
        b"n,,\x01auth=Bearer a.b.c\x01logicalCluster=x\x01\x01"
    )
    assert OAuthBearer("a.b.c").next(b"") is None
    assert OAuthBearer("a.b.c").next(b'{"status":"invalid_token"}') == b"\x01"


@pytest.mark.parametrize(
    ("token", "extensions"), [("", {}), ("a b", {}), ("a\x01b", {}), ("a", {"auth": "x"}), ("a", {"k": "\x01"})]
)
def test_what_would_break_the_message_is_refused(token: str, extensions: dict[str, str]) -> None:
    with pytest.raises(AuthenticationFailed):
        OAuthBearer(token, extensions)


async def test_a_provider_may_be_a_function_or_a_coroutine_function_and_give_text_or_a_token(env: Env) -> None:
    async def later() -> str:
        return "later"

    assert (await Tokens(env, lambda: "now").get()).value == "now"
    assert (await Tokens(env, later).get()).value == "later"
    assert (await Tokens(env, lambda: later()).get()).value == "later"
    assert (await Tokens(env, lambda: OAuthToken("t", extensions={"a": "b"})).get()).extensions == {"a": "b"}


async def test_an_ordinary_function_does_not_hold_up_the_loop(env: Env) -> None:
    threads = []
    await Tokens(env, lambda: threads.append(threading.get_ident()) or "t").get()
    assert threads != [threading.get_ident()]


async def test_a_token_is_used_for_most_of_its_life_and_one_without_an_end_once(env: Env) -> None:
    clock = env.clock = FixedClock()
    numbers = iter(range(100))

    async def short() -> OAuthToken:
        return OAuthToken(f"t{next(numbers)}", lifetime_s=100)

    async def once() -> str:
        return f"t{next(numbers)}"

    tokens = Tokens(env, short)
    assert [(await tokens.get()).value for _ in range(2)] == ["t0", "t0"]
    clock.now += 100 * USED_SHARE - 1
    assert (await tokens.get()).value == "t0"
    clock.now += 2
    assert (await tokens.get()).value == "t1"
    tokens = Tokens(env, once)
    assert [(await tokens.get()).value for _ in range(2)] == ["t2", "t3"]


async def test_a_provider_that_fails_is_worth_another_try_and_one_that_gives_nonsense_is_not(env: Env) -> None:
    def broken() -> str:
        raise OSError("no network")

    with pytest.raises(AuthenticationFailed, match="no network") as caught:
        await Tokens(env, broken).get()
    assert caught.value.retriable
    with pytest.raises(AuthenticationFailed, match="NoneType") as caught:
        await Tokens(env, lambda: None).get()
    assert not caught.value.retriable


def test_an_unsecured_token_has_the_claims_that_its_options_name(env: Env) -> None:
    env.clock = FixedClock()
    prefix = "unsecuredLogin"
    token = unsecured(
        env,
        {
            f"{prefix}StringClaim_sub": "carol",
            f"{prefix}NumberClaim_level": "3",
            f"{prefix}ListClaim_scope": "|a|b",
            f"{prefix}LifetimeSeconds": "60",
            f"{prefix}Extension_tier": "gold",
            "other": "x",
        },
    )
    header, claims, signature = token.value.split(".")
    assert (decoded(header), signature) == ({"alg": "none"}, "")
    assert decoded(claims) == {"sub": "carol", "level": 3.0, "scope": ["a", "b"], "iat": 1000.0, "exp": 1060.0}
    assert (token.lifetime_s, token.extensions) == (60, {"tier": "gold"})
    assert token.value not in repr(token)


def decoded(part: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


class IdentityProvider(BaseHTTPRequestHandler):
    answer = (200, b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append((self.headers["Authorization"], body))  # type: ignore[attr-defined]
        status, content = self.server.answer  # type: ignore[attr-defined]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def provider() -> Iterator[Any]:
    server: Any = HTTPServer(("127.0.0.1", 0), IdentityProvider)
    server.asked = []
    server.url = f"http://127.0.0.1:{server.server_port}/token"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_identity_provider_gives_a_token_for_the_clients_credentials(provider: Any) -> None:
    provider.answer = (200, b'{"access_token": "a.b.c", "expires_in": 300, "token_type": "Bearer"}')
    token = from_endpoint(provider.url, "me", "my secret", "kafka")
    assert (token.value, token.lifetime_s) == ("a.b.c", 300)
    credentials = base64.b64encode(b"me:my secret").decode()
    assert provider.asked == [(f"Basic {credentials}", "grant_type=client_credentials&scope=kafka")]


@pytest.mark.parametrize(
    ("answer", "retriable"),
    [((401, b"{}"), False), ((503, b""), True), ((200, b"<html>"), True), ((200, b"{}"), True)],
)
def test_an_identity_provider_that_gives_none_says_whether_to_try_again(
    provider: Any, answer: tuple[int, bytes], retriable: bool
) -> None:
    provider.answer = answer
    with pytest.raises(AuthenticationFailed, match="gives no token") as caught:
        from_endpoint(provider.url, "me", "my secret", "")
    assert caught.value.retriable is retriable
    assert "secret" not in str(caught.value)
