"""Which cluster a command talks to, and the life of that connection: `--bootstrap`, profiles, properties files.

The command line beats the environment, which beats files. Whatever goes wrong on the way to the cluster or in it
becomes `Failed`, with the next step. Nothing of the client is imported before a command really connects.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from klamm.cli.parsing import Failed, UsageError, assignment, did_you_mean

if TYPE_CHECKING:
    from klamm.client import ClientConfig, Cluster

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
_BOOTSTRAP: Final = "bootstrap.servers"
_NOT_REACHABLE: Final = "Start one with: klamm start. Or name the cluster with --bootstrap HOST:PORT."


def add_connection(parser: argparse.ArgumentParser) -> None:
    """The options that say which cluster; every verb that talks to one has them."""
    group = parser.add_argument_group("which cluster")
    group.add_argument(
        "-b", "--bootstrap", "--bootstrap-server", metavar="HOST:PORT", help="a broker to ask first, or several with "
        f"commas (default: $KLAMM_BOOTSTRAP, or the profile's, or {DEFAULT_BOOTSTRAP})",
    )  # fmt: skip
    group.add_argument("--profile", metavar="PROFILE", help="a profile of ~/.config/klamm/profiles.toml "
                       "(default: $KLAMM_PROFILE, or the one named there as default)")  # fmt: skip
    group.add_argument("--command-config", metavar="FILE", help="client options in a properties file, as Kafka's tools "
                       "take it")  # fmt: skip
    group.add_argument("-X", "--client-option", metavar="NAME=VALUE", action="append", type=assignment, default=[],
                       help="one client option by its Kafka name, as request.timeout.ms=5000; repeatable")  # fmt: skip


def client_properties(args: argparse.Namespace) -> dict[str, str]:
    """The client options that these arguments and the environment ask for; UsageError if one cannot be found."""
    chosen = dict(args.client_option)
    file = _properties_file(args.command_config) if args.command_config else {}
    profile = _profile(args)
    environment = os.environ.get("KLAMM_BOOTSTRAP", "")
    named = file if _BOOTSTRAP in file else profile if args.profile else {}
    bootstrap = (
        args.bootstrap
        or chosen.get(_BOOTSTRAP)
        or named.get(_BOOTSTRAP)
        or environment
        or profile.get(_BOOTSTRAP)
        or DEFAULT_BOOTSTRAP
    )
    return {**profile, **file, **chosen, _BOOTSTRAP: bootstrap}


def client_config(args: argparse.Namespace) -> ClientConfig:
    """The same as the client takes it; says on standard error which options it does not know."""
    from klamm.client import ClientConfig
    from klamm.client.errors import ClientError

    try:
        config = ClientConfig.from_mapping(client_properties(args))
    except ClientError as error:
        raise UsageError(str(error)) from None
    for warning in config.warnings:
        print(f"klamm: {warning}", file=sys.stderr)
    return config


def with_cluster(args: argparse.Namespace, work: Callable[[Cluster], Awaitable[int]]) -> int:
    """Connect, do the work, disconnect. ClientError from any of these becomes `Failed`."""
    config = client_config(args)
    return asyncio.run(_connected(config, work))


async def _connected(config: ClientConfig, work: Callable[[Cluster], Awaitable[int]]) -> int:
    from klamm.client import Cluster
    from klamm.client.cluster import NOBODY_THERE
    from klamm.client.errors import ClientError, NotReachable
    from klamm.core.env.real import real_env

    say_nothing_of_your_own()
    env = real_env()
    try:
        cluster = await Cluster.connect(config, env)
        try:
            return await work(cluster)
        finally:
            await cluster.close()
    except NotReachable as error:
        more = f" {_NOT_REACHABLE}" if error.hint in ("", NOBODY_THERE) else ""  # another hint knows better
        raise Failed(error.text, f"{error.hint}{more}".strip()) from None
    except ClientError as error:
        raise Failed(error.text, error.hint) from None
    finally:
        env.executor.close()


def say_nothing_of_your_own() -> None:
    """The client logs what programs that use it should hear of; a command tells its user itself."""
    logging.getLogger("klamm.client").addHandler(logging.NullHandler())


def _properties_file(path: str) -> dict[str, str]:
    from klamm.core.options.option import OptionError
    from klamm.core.options.properties import parse_properties

    try:
        with open(path, encoding="utf-8") as file:
            return parse_properties(file.read())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a text file in UTF-8") from None
    except OptionError as error:
        raise UsageError(f"{path}: {error}") from None


def _profile(args: argparse.Namespace) -> dict[str, str]:
    wanted = args.profile or os.environ.get("KLAMM_PROFILE", "")
    default, profiles = load_profiles()
    if not wanted:
        if default and default not in profiles:
            raise UsageError(f"{profiles_path()} names {default!r} as default and has no such profile; add [{default}]")
        return profiles.get(default, {})
    if wanted not in profiles:
        close = did_you_mean(wanted, profiles)
        raise UsageError(f"there is no profile {wanted!r}{close}; profiles are sections of {profiles_path()}")
    return profiles[wanted]


def profiles_path() -> str:
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(folder, "klamm", "profiles.toml")


def load_profiles() -> tuple[str, dict[str, dict[str, str]]]:
    """The default's name ("" if none) and all profiles; a file that is not there has none.

    A section is a profile. Its keys are Kafka's client options, dots and all, and `bootstrap` for short.
    """
    path = profiles_path()
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return "", {}
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    import tomllib

    try:
        found = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    default = found.pop("default", "")
    wrong = [name for name, section in found.items() if not isinstance(section, dict)]
    if wrong or not isinstance(default, str):
        raise UsageError(f"{path}: {', '.join(wrong) or 'default'} is out of place; options belong into a [profile]")
    return default, {name: _flat(section) for name, section in found.items()}


def _flat(section: dict[str, object], prefix: str = "") -> dict[str, str]:
    """TOML reads `bootstrap.servers = ...` as a table in a table: put the names together again."""
    flat: dict[str, str] = {}
    for key, value in section.items():
        name = prefix + key
        if isinstance(value, dict):
            flat |= _flat(value, f"{name}.")
        else:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            flat[_BOOTSTRAP if name == "bootstrap" else name] = text.lower() if isinstance(value, bool) else text
    return flat
