"""`make wheel`: one wheel with the native kernel, one in pure Python. Both work."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = re.search(r"^BUILD := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
PARTS = ("src", "setup.py", "pyproject.toml", "README.md", "LICENSE")
SYSTEM = r"manylinux_2_17_\w+" if platform.libc_ver()[0] == "glibc" and shutil.which("objdump") else r"\w+"
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")


@pytest.mark.parametrize(
    ("kernel", "name", "implementation"),
    [
        pytest.param("required", rf"klamm-[\d.]+-cp311-abi3-{SYSTEM}\.whl", "native",
                     marks=pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")),
        ("none", r"klamm-[\d.]+-py3-none-any\.whl", "pure Python"),
    ],
)  # fmt: skip
def test_a_wheel_has_what_its_name_says(kernel: str, name: str, implementation: str, tmp_path: Path) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, source / part, ignore=LEFT_OUT)
        else:
            shutil.copy(ROOT / part, source / part)
    assert BUILD is not None
    run(["-c", BUILD[1]], source, KLAMM_KERNEL=kernel)
    (wheel,) = (source / "dist").iterdir()
    assert re.fullmatch(name, wheel.name)

    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        packed.extractall(site)
    assert "klamm/py.typed" in names
    assert not [each for each in names if each.endswith((".c", ".h"))]
    assert any(each.endswith(".so") for each in names) == (implementation == "native")
    libraries = str(sysconfig.get_config_var("LIBDIR")).encode()
    assert not [each for each in site.rglob("*.so") if libraries in each.read_bytes()], "a folder of this machine"
    shown = run(["-m", "klamm", "info"], tmp_path, PYTHONPATH=str(site))
    assert re.search(rf"^records: +{implementation}", shown, re.MULTILINE), shown
    assert str(site) in shown


def run(arguments: list[str], folder: Path, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("KLAMM_")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
