from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from klamm.cli import VERBS, main


def test_without_arguments_it_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "start a broker" in capsys.readouterr().err


def test_the_version_says_which_code_reads_records(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert not stopped.value.code
    assert re.fullmatch(r"klamm \d+\.\d+\.\d+\S* \(records: (native|pure Python)\)\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    "arguments",
    [
        ["begin"],
        ["start", "--port", "9"],
        ["--bogus", "start"],
        ["log"],
        ["topic"],
        ["topic", "create"],
        ["topic", "create", "t", "--partitions", "none"],
        ["topic", "create", "t", "--partitions", "0"],
        ["topic", "create", "t", "--config", "retention.ms"],
        ["topic", "list", "-o", "xml"],
        ["top", "--interval", "0"],
        ["completion", "tcsh"],
    ],
)
def test_a_mistake_is_one_line_that_names_the_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and "--help" in error


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["topics"], "topic"),
        (["topic", "desribe"], "describe"),
        (["topic", "create", "t", "--partition", "3"], "--partitions"),
        (["topic", "list", "--bootstrap-servers=x:1"], "--bootstrap-server"),
        (["completion", "bsh"], "bash"),
    ],
)
def test_a_mistyped_word_is_told_with_the_nearest(
    arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert f"did you mean {meant}?" in capsys.readouterr().err


def sub_verbs() -> list[list[str]]:
    from klamm.cli import build_parser
    from klamm.cli.complete import _subparsers

    found = []
    for verb in VERBS:
        subs = _subparsers(build_parser(verb)[1][verb])
        found += [[verb, sub] for sub in subs.choices] if subs is not None else [[verb]]
    return found


@pytest.mark.parametrize("words", [words for words in sub_verbs() if words[0] not in ("log", "completion")])
def test_every_command_has_examples_in_its_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["help", *words])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: klamm {' '.join(words)}")
    assert "examples:" in shown and f"  klamm {' '.join(words)}" in shown.partition("examples:")[2]


def examples() -> list[str]:
    """The commands that help shows: up to the remark, a pipe or a redirection behind them."""
    from klamm.cli import build_parser
    from klamm.cli.complete import _subparsers

    texts = [build_parser(None)[0].epilog or ""]
    for words in sub_verbs():
        parser = build_parser(words[0])[1][words[0]]
        subs = _subparsers(parser)
        texts.append((subs.choices[words[1]] if subs is not None else parser).epilog or "")
    lines = [line.strip() for text in texts for line in text.splitlines()]
    commands = [re.split(r"  +| \| | > | < ", line)[0] for line in lines if line.startswith("klamm ")]
    return sorted({command for command in commands if not command.startswith("klamm help")})


@pytest.mark.parametrize("command", examples())
def test_an_example_of_the_help_is_a_command_that_is_understood(command: str) -> None:
    from klamm.cli import build_parser

    _, *words = shlex.split(command)
    options, unknown = build_parser(words[0])[0].parse_known_args(words)
    assert callable(options.run) and unknown == []


def test_help_loads_nothing_that_it_does_not_need() -> None:
    ask = "klamm.cli.main(['--help'])"
    code = f"import sys, klamm.cli\ntry: {ask}\nexcept SystemExit: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = done.stderr.split()
    assert "argparse" in loaded
    assert [name for name in loaded if name.startswith(("asyncio", "klamm.client", "klamm.core", "klamm.wire"))] == []
