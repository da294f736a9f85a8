from __future__ import annotations

import pytest

from klamm.cli import main


def test_without_arguments_it_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "start a broker" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["begin"], ["start", "--port", "9"], ["--bogus", "start"], ["log"]])
def test_a_mistake_is_one_line_that_names_the_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and "--help" in error
