"""`klamm __complete SHELL WORD...`: what could stand in the place of the last word. Shells call it (completion.py).

A line for each candidate, with a description behind a tab; `:files` and `:dirs` leave it to the shell. What an argument
takes is read from its metavar, so a new verb is completed without a line here: TOPIC, GROUP, TRANSACTIONAL_ID, FILE,
DIR, ID, PROFILE, OPTION, OPTION=VALUE. Must be quick and quiet: whatever goes wrong, there are no candidates.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from klamm.cli import VERBS, build_parser
from klamm.cli.connect import add_connection, client_properties, load_profiles, say_nothing_of_your_own
from klamm.cli.output import plural

if TYPE_CHECKING:
    from klamm.client import Cluster
    from klamm.core.options import Option

T = TypeVar("T")

FILES: Final = ":files"
DIRS: Final = ":dirs"
_CLUSTER_LIMIT_MS: Final = 1000
"""How long the cluster may take to tell its topics, since nobody waits for completion. $KLAMM_COMPLETION_MS changes it,
for clusters that are far away."""


class Candidate(NamedTuple):
    word: str
    about: str = ""


class Place(NamedTuple):
    """Where in a command the cursor is."""

    parser: argparse.ArgumentParser
    given: dict[str, str]  # values of options so far, by their dest
    words: list[str]  # positional arguments so far
    pending: argparse.Action | None  # the option whose value comes next


def run(args: Sequence[str]) -> int:
    shell, *words = args or ["", ""]
    for candidate in candidates(shell, words or [""]):
        about = " ".join(candidate.about.split())
        print(f"{candidate.word}\t{about}" if about and not candidate.word.startswith(":") else candidate.word)
    return 0


def candidates(shell: str, words: Sequence[str]) -> list[Candidate]:
    """The candidates for the last of `words`, which may be empty."""
    joined = _joined(words) if shell == "bash" else list(words)
    *before, current = joined
    prefix = ""
    if current.startswith("--") and "=" in current:  # --option=value: complete the value
        option, _, current = current.partition("=")
        before, prefix = [*before, option], f"{option}="
    found = [
        candidate if candidate.word.startswith(":") else candidate._replace(word=prefix + candidate.word)
        for candidate in _all(before, current)
        if candidate.word.startswith((current, ":"))
    ]
    # bash takes "name=value" for three words, and wants the rest of the last one only.
    cut = len((prefix + current).rpartition("=")[0]) + 1 if shell == "bash" and "=" in prefix + current else 0
    return [one if one.word.startswith(":") else one._replace(word=one.word[cut:]) for one in found]


def _joined(words: Sequence[str]) -> list[str]:
    """Put together again what bash has taken apart at "=" and ":"."""
    result: list[str] = []
    glue = False
    for word in words:
        if word in ("=", ":") and result:
            result[-1] += word
            glue = True
        elif glue:
            result[-1] += word
            glue = False
        else:
            result.append(word)
    return result


def _all(before: Sequence[str], current: str) -> Iterator[Candidate]:
    if before[:1] == ["help"]:
        before = before[1:]
    if not before:
        yield from (Candidate(verb, about) for verb, about in VERBS.items())
        yield from (Candidate("help", "all about a command"), Candidate("--version"), Candidate("--help"))
        return
    if before[0] not in VERBS:
        return
    _, verbs = build_parser(before[0])
    place = _walk(verbs[before[0]], before[1:])
    if place.pending is not None:
        yield from _values(place.pending, place, current)
    elif current.startswith("-"):
        yield from _options(place.parser)
    else:
        yield from _positionals(place, current)


def _walk(parser: argparse.ArgumentParser, words: Sequence[str]) -> Place:
    given: dict[str, str] = {}
    plain: list[str] = []
    pending: argparse.Action | None = None
    for word in words:
        if pending is not None:
            given[pending.dest] = word
            pending = None
        elif word.startswith("-") and len(word) > 1:
            name, equals, value = word.partition("=")
            action = parser._option_string_actions.get(name)
            if action is not None and action.nargs != 0:
                if equals:
                    given[action.dest] = value
                else:
                    pending = action
        elif (subs := _subparsers(parser)) is not None and word in subs.choices:
            parser, plain = subs.choices[word], []
        else:
            plain.append(word)
    return Place(parser, given, plain, pending)


def _subparsers(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[argparse.ArgumentParser] | None:
    return next((action for action in parser._actions if isinstance(action, argparse._SubParsersAction)), None)


def _options(parser: argparse.ArgumentParser) -> Iterator[Candidate]:
    for action in parser._actions:
        name = next((name for name in action.option_strings if name.startswith("--")), None)
        if name is not None:
            yield Candidate(name, action.help or "")


def _positionals(place: Place, current: str) -> Iterator[Candidate]:
    subs = _subparsers(place.parser)
    if subs is not None:
        yield from (Candidate(choice.dest, choice.help or "") for choice in subs._choices_actions)
        return
    actions = [action for action in place.parser._actions if not action.option_strings]
    if not actions:
        return
    action = actions[min(len(place.words), len(actions) - 1)]
    if len(place.words) >= len(actions) and action.nargs not in ("*", "+"):
        return
    if action.dest == "words" and place.words:  # of `config get` and `config set`: a resource and its options
        yield from _resource_words(place, current)
    else:
        yield from _values(action, place, current)


def _values(action: argparse.Action, place: Place, current: str) -> Iterator[Candidate]:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if action.choices is not None:
        yield from (Candidate(str(choice)) for choice in action.choices)
    elif metavar == "TOPIC":
        yield from _topics(place)
    elif metavar == "GROUP":
        yield from _groups(place)
    elif metavar == "TRANSACTIONAL_ID":
        yield from _transactions(place)
    elif metavar == "ID":
        yield from _brokers(place)
    elif metavar == "PROFILE":
        yield from _profiles()
    elif metavar == "FILE":
        yield Candidate(FILES)
    elif metavar == "DIR":
        yield Candidate(DIRS)
    elif metavar in ("OPTION", "OPTION=VALUE") or action.dest in ("set", "client_option"):
        yield from _option_names(_table(action, place), current, with_value="=" in metavar)


def _resource_words(place: Place, current: str) -> Iterator[Candidate]:
    kind, *words = place.words
    if kind != "cluster" and not words:
        if kind == "topic":
            yield from _topics(place)
        elif kind.startswith("broker"):
            yield from _brokers(place)
        return
    from klamm.core.options import BROKER_OPTIONS, TOPIC_OPTIONS

    table = TOPIC_OPTIONS if kind == "topic" else BROKER_OPTIONS if kind in ("broker", "cluster") else {}
    yield from _option_names(table.values(), current, with_value=place.parser.prog.endswith("set"))


def _table(action: argparse.Action, place: Place) -> Iterable[Option]:
    """The options that this argument takes the name of."""
    from klamm.core.options import BROKER_OPTIONS, TOPIC_OPTIONS

    if action.dest == "client_option":
        from klamm.client.config import options

        return options().values()
    of_broker = place.parser.prog.endswith("start") or place.words[:1] in (["broker"], ["cluster"])
    return (BROKER_OPTIONS if of_broker else TOPIC_OPTIONS).values()


def _option_names(table: Iterable[Option], current: str, *, with_value: bool) -> Iterator[Candidate]:
    name, equals, _ = current.partition("=")
    for option in table:
        if not equals:
            yield Candidate(option.name + ("=" if with_value else ""), option.doc)
        elif option.name == name and with_value:
            values = option.choices or (("true", "false") if isinstance(option.default, bool) else ())
            yield from (Candidate(f"{name}={value}") for value in values)


def _profiles() -> Iterator[Candidate]:
    for name, profile in load_profiles()[1].items():
        yield Candidate(name, profile.get("bootstrap.servers", ""))


def _topics(place: Place) -> Iterator[Candidate]:
    metadata = _ask(place, lambda cluster: cluster.metadata())
    if metadata is not None:
        for name, topic in sorted(metadata.topics.items()):
            if name not in place.words:
                yield Candidate(name, "internal" if topic.internal else plural(len(topic.partitions), "partition"))


def _groups(place: Place) -> Iterator[Candidate]:
    from klamm.client.admin.groups import Groups

    for group in _ask(place, lambda cluster: Groups(cluster).list_groups()) or ():
        if group.group_id not in place.words:
            yield Candidate(group.group_id, group.state)


def _transactions(place: Place) -> Iterator[Candidate]:
    from klamm.client.admin.transactions import Transactions

    for one in _ask(place, lambda cluster: Transactions(cluster).list_transactions()) or ():
        if one.transactional_id not in place.words:
            yield Candidate(one.transactional_id, one.state)


def _brokers(place: Place) -> Iterator[Candidate]:
    metadata = _ask(place, lambda cluster: cluster.metadata([]))
    if metadata is not None:
        yield from (Candidate(str(broker.id), str(broker)) for broker in metadata.brokers.values())


def _ask(place: Place, question: Callable[[Cluster], Awaitable[T]]) -> T | None:
    """What the cluster of this command line says, if it says so at once."""
    import asyncio

    from klamm.client import ClientConfig, Cluster
    from klamm.client.errors import ClientError
    from klamm.core.env.real import real_env

    say_nothing_of_your_own()
    wanted = os.environ.get("KLAMM_COMPLETION_MS", "")
    limit_ms = int(wanted) if wanted.isdecimal() else _CLUSTER_LIMIT_MS

    async def ask(config: ClientConfig) -> T:
        async with asyncio.timeout(limit_ms / 1000):
            async with await Cluster.connect(config, real_env()) as cluster:
                return await question(cluster)

    try:
        return asyncio.run(ask(ClientConfig.from_mapping(_properties(place))))
    except (ClientError, TimeoutError):
        return None


def _properties(place: Place) -> dict[str, str]:
    parser = argparse.ArgumentParser()
    add_connection(parser)
    args = parser.parse_args([])
    for dest in ("bootstrap", "profile", "command_config"):
        setattr(args, dest, place.given.get(dest))
    return client_properties(args)
