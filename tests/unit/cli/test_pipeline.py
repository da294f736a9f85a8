"""`klamm pipeline` as far as it goes without Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from klamm.cli import main


def test_a_new_pipeline_is_whole_and_has_no_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from klamm.spark.pipelines.spec import load

    folder = tmp_path / "my clicks"
    assert main(["pipeline", "new", str(folder)]) == 0
    assert f"klamm pipeline check '{folder}' --no-cluster" in capsys.readouterr().out
    found = load(str(folder))
    assert (found.name, [one.name for one in found.flows]) == ("my-clicks", ["clicks_by_page"])
    readme = (folder / "README.md").read_text()
    assert f"klamm pipeline run '{folder}'" in readme and "{" not in readme.replace('{"user"', "")


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["pipeline", "new", str(tmp_path)]) == 2
    assert main(["pipeline", "new", str(tmp_path / "notes.txt")]) == 2
    assert main(["pipeline", "new", str(tmp_path / "notes.txt" / "below")]) == 2
    assert all(line.startswith("klamm: ") for line in capsys.readouterr().err.splitlines())
    assert [one.name for one in tmp_path.iterdir()] == ["notes.txt"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    assert main(["pipeline", "new", str(tmp_path)]) == 0
    assert (tmp_path / "pipeline.yml").exists()


def test_check_tells_every_mistake_in_a_line_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pipeline.yml").write_text("name: a\ninputs: {b: {topic: b, format: jso}}\nflows: {c: {sql: c.sql}}\n")
    assert main(["pipeline", "check", str(tmp_path), "--no-cluster"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert [line.removeprefix(f"{tmp_path}/").split(": ")[0] for line in lines] == [
        "pipeline.yml:2:32", "pipeline.yml:3:18",
    ]  # fmt: skip


def test_without_spark_one_sentence_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["pipeline", "check", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "pipelines need Spark" in told and "pip install '.[spark]'" in told


def test_help_imports_neither_spark_nor_yaml() -> None:
    program = (
        "import sys; from klamm.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit:\n    pass\n"
        "print([name for name in ('pyspark', 'yaml', 'klamm.client') if name in sys.modules])"
    )
    for words in (["--help"], ["pipeline", "--help"], ["pipeline", "check", "--help"]):
        done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]"
