"""From options to a mechanism: who logs in, with what, and how."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from klamm.client.connection_options import ConnectionOptions
from klamm.client.errors import ConfigError
from klamm.client.sasl import Mechanism
from klamm.client.sasl.jaas import parse
from klamm.client.sasl.scram import DIGESTS, Scram
from klamm.client.sasl.simple import OAuthBearer, Plain
from klamm.client.sasl.tokens import Tokens, from_endpoint, unsecured
from klamm.core.env import Env

MECHANISMS: Final = ("PLAIN", *DIGESTS, "OAUTHBEARER")
_MODULES: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": tuple(DIGESTS),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}
_NONCE_BYTES: Final = 24


class Account(NamedTuple):
    """`options` are those of the login module: username, password, tokenauth, clientId ..."""

    mechanism: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Account({self.mechanism})"


def check(config: ConnectionOptions) -> None:
    """`ConfigError` unless somebody can log in with this."""
    account = read(config)
    if account.mechanism == "OAUTHBEARER":
        _token_source(config, account)
    elif not account.options.get("username") or "password" not in account.options:
        raise ConfigError(f"{account.mechanism} needs a user name and a password.",
                          "Give sasl.username and sasl.password, or sasl.jaas.config.")  # fmt: skip


def read(config: ConnectionOptions) -> Account:
    mechanism = config.sasl_mechanism.upper()
    options: dict[str, str] = {}
    if config.sasl_jaas_config is not None:
        module, options = parse(config.sasl_jaas_config)
        fitting = _MODULES.get(module)
        if fitting is None:
            raise ConfigError(f"sasl.jaas.config: {module} is not supported.", f"These are: {', '.join(_MODULES)}.")
        mechanism = mechanism or fitting[0]
        if mechanism in MECHANISMS and mechanism not in fitting:
            raise ConfigError(f"sasl.jaas.config: {module} does not go with sasl.mechanism={mechanism}.")
    else:
        if config.sasl_username:
            options["username"] = config.sasl_username
        if config.sasl_password is not None:
            options["password"] = config.sasl_password
    if mechanism not in MECHANISMS:
        said = f"sasl.mechanism={config.sasl_mechanism} is not supported" if mechanism else "sasl.mechanism is missing"
        raise ConfigError(f"{said}.", f"It can be one of {', '.join(MECHANISMS)}.")
    return Account(mechanism, options)


def _token_source(config: ConnectionOptions, account: Account) -> str:
    """What tokens come from."""
    if config.sasl_oauthbearer_token_provider is not None:
        if not callable(config.sasl_oauthbearer_token_provider):
            raise ConfigError("sasl.oauthbearer.token.provider is not callable.")
        return "provider"
    if config.sasl_oauthbearer_token_endpoint_url:
        if not config.sasl_oauthbearer_token_endpoint_url.startswith(("https://", "http://")):
            raise ConfigError("sasl.oauthbearer.token.endpoint.url is not an address that begins with https://.")
        return "endpoint"
    if any(name.startswith("unsecuredLogin") for name in account.options):
        return "unsecured"
    raise ConfigError("OAUTHBEARER needs something that gives tokens.",
                      "Give sasl.oauthbearer.token.provider (a callable) or sasl.oauthbearer.token.endpoint.url."
                      )  # fmt: skip


class Credentials:
    """Those of one client. `mechanism` makes what one login takes."""

    def __init__(self, env: Env, config: ConnectionOptions) -> None:
        self._env = env
        self._account = read(config)
        self._salted: dict[tuple[bytes, int], bytes] = {}
        self._tokens = _tokens(env, config, self._account) if self._account.mechanism == "OAUTHBEARER" else None

    async def mechanism(self) -> Mechanism:
        name, options = self._account
        if self._tokens is not None:
            token = await self._tokens.get()
            return OAuthBearer(token.value, token.extensions)
        username, password = options["username"], options["password"]
        if name == "PLAIN":
            return Plain(username, password)
        nonce = self._env.rng.randbytes(_NONCE_BYTES).hex()
        is_token = options.get("tokenauth", "").lower() == "true"
        return Scram(name, username, password, nonce, is_token=is_token, salted=self._salted)


def _tokens(env: Env, config: ConnectionOptions, account: Account) -> Tokens:
    source = _token_source(config, account)
    if source == "provider":
        assert config.sasl_oauthbearer_token_provider is not None
        return Tokens(env, config.sasl_oauthbearer_token_provider)
    options = account.options
    if source == "unsecured":
        return Tokens(env, partial(unsecured, env, options))
    return Tokens(
        env,
        partial(
            from_endpoint,
            config.sasl_oauthbearer_token_endpoint_url,
            config.sasl_oauthbearer_client_credentials_client_id or options.get("clientId", ""),
            config.sasl_oauthbearer_client_credentials_client_secret or options.get("clientSecret", ""),
            config.sasl_oauthbearer_scope or options.get("scope", ""),
        ),
    )
