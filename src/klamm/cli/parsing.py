"""argparse with the manners of this command: a mistake is one line, names the nearest right word, and where help is.

Nothing is imported here that `klamm --help` does not need: that has to answer at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn, TypeAlias

Run: TypeAlias = Callable[[argparse.Namespace], int]


_ELSEWHERE: Final = {
    "--from-beginning": {"--from": "--from beginning"},
    "--max-messages": {"--count": "--count"},
    "--max": {"--count": "--count"},
    "--offset": {"--from": "--from"},
    "--port": {"--listen": "--listen HOST:PORT", "--bootstrap": "--bootstrap HOST:PORT"},
    "--to-earliest": {"--shift": "--to earliest"},
    "--to-latest": {"--shift": "--to latest"},
    "--to-offset": {"--shift": "--to OFFSET"},
    "--to-datetime": {"--shift": "--to TIME"},
    "--by-duration": {"--shift": "--to 2h"},
    "--shift-by": {"--shift": "--shift"},
    "--from-file": {"--shift": "--file"},
    "--group": {"--shift": "the group's name without --group", "--members": "the group's name without --group"},
    "--topic": {"--partition": "the topic's name without --topic"},
}
"""What people are used to from other tools; and what it is here, where a verb has that option."""


class UsageError(Exception):
    """A mistake of the user's: its text is one sentence that says what to do; no traceback, exit code 2."""


class Failed(Exception):
    """The cluster said no, or did not answer: what happened, and in `hint` what to do next. Exit code 1."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and where help is, instead of showing the whole usage."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        options.setdefault("allow_abbrev", False)  # an abbreviation in a script breaks when an option is added
        super().__init__(**options)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"klamm: {message}; see {self.prog} --help\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        names = [str(choice) for choice in action.choices]
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"there is no command {value!r}{did_you_mean(str(value), names)}")
        raise argparse.ArgumentError(action, f"{value!r} is not one of {', '.join(names)}{did_you_mean(value, names)}")

    def unknown(self, words: list[str]) -> NoReturn:
        """Tell of arguments that nothing of this verb takes."""
        known = [name for name in self._option_string_actions if name.startswith("--")]
        word = words[0].partition("=")[0]
        close = did_you_mean(word, known) if word.startswith("--") else ""
        for option, ours in _ELSEWHERE.get(word, {}).items():
            if option in known:
                close = f" (did you mean {ours}?)"
        self.error(f"unknown arguments: {' '.join(words)}{close}")


def add_verb(verbs: Any, name: str, summary: str, run: Run, *, about: str = "", examples: str = "") -> Parser:
    """A sub-verb: `summary` is its line in the list, `about` and `examples` stand in its own help."""
    parser: Parser = verbs.add_parser(
        name,
        help=summary,
        description=about.strip() or sentence(summary),
        epilog=f"examples:\n{examples.strip(chr(10))}" if examples else None,
    )
    parser.set_defaults(run=run, parser=parser)
    return parser


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant, if one is close."""
    from difflib import get_close_matches

    found = get_close_matches(word, list(names), n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(word: str, names: Iterable[str]) -> str:
    close = nearest(word, names)
    return f" (did you mean {close}?)" if close else ""


def whole_number(least: int) -> Callable[[str], int]:
    """An argument type: a whole number, `least` or more."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if number < least:
            raise argparse.ArgumentTypeError(f"{text} is too small: the least is {least}")
        return number

    return parse


def seconds(text: str) -> float:
    """An argument type: a time in seconds above zero; `500ms`, `2s` and `1m` are understood too."""
    from klamm.cli.units import duration_ms

    try:
        found = float(text)
    except ValueError:
        found = (duration_ms(text) or 0) / 1000
    if not 0 < found < 10**9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time in seconds above zero")
    return found


def assignment(text: str) -> tuple[str, str]:
    """An argument type: NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name.strip(), value.strip()
