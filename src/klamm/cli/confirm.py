"""A question before something is gone for good."""

from __future__ import annotations

import signal
import sys

from klamm.cli.parsing import Failed, UsageError


def confirm(question: str, unattended: str, if_not: str) -> None:
    """Ask a person; Failed with `if_not` unless the answer is yes. Where nobody can answer: UsageError with
    `unattended`, which says what would happen."""
    if not sys.stdin.isatty():
        raise UsageError(f"{unattended}; add --yes to do it")
    print(question)
    # asyncio's own handler would only cancel us, which we would notice after the answer
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        answer = input("Really? [y/N] ")
    except EOFError:
        answer = ""
    finally:
        signal.signal(signal.SIGINT, handler)
    if answer.strip().lower() not in ("y", "yes"):
        raise Failed(if_not)
