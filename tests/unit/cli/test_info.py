"""`klamm info`."""

from __future__ import annotations

import json

import pytest

import klamm
from klamm.cli import info, main


def test_it_says_which_code_reads_records_and_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    from klamm.records.kernel import implementation

    assert main(["info", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["klamm"] == klamm.__version__
    assert found["records"] == implementation
    assert found["packages"]["crc32c"]
    assert main(["info"]) == 0
    shown = capsys.readouterr().out
    assert implementation in shown and "crc32c" in shown


def test_what_is_missing_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info, "_PACKAGES", {"no-such-package": "nothing"})
    assert main(["info"]) == 0
    assert "no-such-package:  not installed  (nothing)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModuleNotFoundError("no module"), "was built without the native kernel"),
        (ImportError("undefined symbol"), "cannot be loaded: undefined symbol"),
        (None, "is of another version"),
    ],
)
def test_why_it_is_not_the_native_kernel(error: ImportError | None, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(info, "import_module", load)
    monkeypatch.delenv("KLAMM_PURE_PYTHON", raising=False)
    assert said in info._why_pure()
    monkeypatch.setenv("KLAMM_PURE_PYTHON", "1")
    assert info._why_pure() == "KLAMM_PURE_PYTHON is set"
