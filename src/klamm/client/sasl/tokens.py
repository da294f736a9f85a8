"""Tokens for OAUTHBEARER: from a callable, from the endpoint of an identity provider, or made up (for tests).

A token is asked for whenever a connection logs in. One that says when it ends is used again until most of its life is
over; nothing runs in the background.
"""

from __future__ import annotations

import base64
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klamm.client.connection_options import TokenProvider
from klamm.client.errors import AuthenticationFailed
from klamm.core.env import Env

USED_SHARE: Final = 0.8
"""Of its life: what sasl.login.refresh.window.factor is by default."""
UNSECURED_LIFETIME_S: Final = 3600
ENDPOINT_LIMIT_S: Final = 10
MAX_ANSWER_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class OAuthToken:
    """What a token provider may give instead of plain text. `lifetime_s` counts from now; without it the token is used
    once. `extensions` go to the broker beside it (KIP-342)."""

    value: str = field(repr=False)
    lifetime_s: float | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)


class Tokens:
    def __init__(self, env: Env, provider: TokenProvider) -> None:
        self._env = env
        self._provider = provider
        self._kept: tuple[OAuthToken, float] | None = None

    async def get(self) -> OAuthToken:
        """`AuthenticationFailed`, which may be worth a retry, if the provider gives none."""
        now = self._env.clock.monotonic()
        if self._kept is not None and now < self._kept[1]:
            return self._kept[0]
        token = await self._ask()
        self._kept = None if token.lifetime_s is None else (token, now + token.lifetime_s * USED_SHARE)
        return token

    async def _ask(self) -> OAuthToken:
        try:
            if inspect.iscoroutinefunction(self._provider):
                given = await self._provider()
            else:
                given = await self._env.executor.submit(self._provider)
                if inspect.isawaitable(given):
                    given = await given
        except AuthenticationFailed:
            raise
        except Exception as error:  # whatever a callable of the user's raises
            raise AuthenticationFailed(f"no token is to be had: {error!r}", retriable=True) from error
        if isinstance(given, OAuthToken):
            return given
        if not isinstance(given, str):
            raise AuthenticationFailed(f"the token provider gave a {type(given).__name__}, not text or an OAuthToken")
        return OAuthToken(given)


def unsecured(env: Env, options: Mapping[str, str]) -> OAuthToken:
    """A token that nobody has signed, as Java's login module makes it from its `unsecuredLogin...` options. Brokers
    take it unless they were told to check; nobody should in earnest."""
    prefix = "unsecuredLogin"
    lifetime_s = int(options.get(prefix + "LifetimeSeconds", UNSECURED_LIFETIME_S))
    issued_s = env.clock.time_ms() / 1000
    claims: dict[str, Any] = {"iat": issued_s, "exp": issued_s + lifetime_s}
    extensions = {}
    for name, value in options.items():
        if name.startswith(prefix + "StringClaim_"):
            claims[name.rpartition("Claim_")[2]] = value
        elif name.startswith(prefix + "NumberClaim_"):
            claims[name.rpartition("Claim_")[2]] = float(value)
        elif name.startswith(prefix + "ListClaim_"):
            claims[name.rpartition("Claim_")[2]] = [item for item in value[1:].split(value[0]) if item] if value else []
        elif name.startswith(prefix + "Extension_"):
            extensions[name.rpartition("Extension_")[2]] = value
    token = ".".join((_part({"alg": "none"}), _part(claims), ""))
    return OAuthToken(token, lifetime_s, extensions)


def _part(content: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content, separators=(",", ":")).encode()).rstrip(b"=").decode()


def from_endpoint(url: str, client_id: str, client_secret: str, scope: str) -> OAuthToken:
    """Ask an identity provider (client credentials, RFC 6749 section 4.4). Blocks: runs in a thread."""
    from urllib.error import HTTPError
    from urllib.parse import urlencode
    from urllib.request import Request, urlopen

    form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    credentials = base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
    headers = {"Authorization": f"Basic {credentials}", "Accept": "application/json"}
    try:
        with urlopen(Request(url, urlencode(form).encode(), headers), timeout=ENDPOINT_LIMIT_S) as answer:
            said = json.loads(answer.read(MAX_ANSWER_BYTES))
        return OAuthToken(said["access_token"], float(said["expires_in"]) if "expires_in" in said else None)
    except HTTPError as error:
        refused = 400 <= error.code < 500
        raise AuthenticationFailed(f"{url} gives no token: {error}", retriable=not refused) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AuthenticationFailed(f"{url} gives no token: {error}", retriable=True) from None
