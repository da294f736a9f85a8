"""The native kernel; everything else about the package is in pyproject.toml.

One binary for all versions from 3.11 on (the limited API). Where it cannot be compiled the build goes on without it,
and klamm.records.kernel takes the pure twins; so does a free-threaded Python, which has no such API yet. With
KLAMM_KERNEL=required in the environment a build without it fails, with KLAMM_KERNEL=none there is none (`make wheel`).

A wheel says which glibc it needs (PEP 600) by what its kernel is really linked to: nothing but libc, and of that what
was there long before Python 3.11. Where this cannot be told (no binutils, another libc) it is for this system alone.
"""

import os
import re
import shutil  # noqa: TID251 - no part of what runs
import subprocess  # noqa: TID251
import sysconfig
from pathlib import Path  # noqa: TID251

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel

FOLDER = "src/klamm/records/_native"
WANTED = os.environ.get("KLAMM_KERNEL", "optional")

kernel = Extension(
    "klamm.records._native.kernel",
    sources=[
        f"{FOLDER}/{name}.c"
        for name in (
            "builder",
            "compact",
            "consume",
            "decode",
            "encode",
            "key_map",
            "keymap",
            "module",
            "records",
            "rows",
            "table",
        )
    ],
    depends=[f"{FOLDER}/{name}.h" for name in ("decode", "heads", "keymap", "module", "out", "records", "rows")],
    define_macros=[("Py_LIMITED_API", "0x030B0000")],
    py_limited_api=True,
    optional=WANTED != "required",
)

OLDEST_GLIBC = (2, 17)
"""That of manylinux2014: there is no tag for an older one that installers still look for."""


class BuildKernel(build_ext):
    def build_extensions(self):
        """Without the folders of the Python that compiles it: they mean nothing elsewhere."""
        linker = getattr(self.compiler, "linker_so", None)
        if linker:
            self.compiler.linker_so = [word for word in linker if not word.startswith(("-Wl,-rpath", "-L"))]
        super().build_extensions()


class Wheel(bdist_wheel):
    def get_tag(self):
        python, abi, platform = super().get_tag()
        kernels = list(Path(self.bdist_dir).rglob("*.so"))
        if platform.startswith("linux_") and len(kernels) == 1:
            platform = portable(kernels[0], platform)
        return python, abi, platform


def portable(kernel, platform):
    """The tag of all systems on which this works, or that of this one if nobody knows."""
    if not shutil.which("objdump"):
        return platform
    shown = subprocess.run(["objdump", "-p", str(kernel)], capture_output=True, text=True, check=False).stdout
    needed = set(re.findall(r"^\s+NEEDED\s+(\S+)", shown, re.MULTILINE))
    versions = [tuple(map(int, found.split("."))) for found in re.findall(r"\bGLIBC_([\d.]+)", shown)]
    if needed != {"libc.so.6"} or not versions:
        return platform
    major, minor = max(OLDEST_GLIBC, max(versions)[:2])
    return f"manylinux_{major}_{minor}_{platform.removeprefix('linux_')}"


if WANTED == "none" or sysconfig.get_config_var("Py_GIL_DISABLED"):
    setup()
else:
    setup(
        ext_modules=[kernel],
        cmdclass={"build_ext": BuildKernel, "bdist_wheel": Wheel},
        options={"bdist_wheel": {"py_limited_api": "cp311"}},
    )
