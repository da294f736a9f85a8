"""The native kernel; everything else about the package is in pyproject.toml.

One binary for all versions from 3.11 on (the limited API). Where it cannot be compiled the build goes on without it,
and klamm.records.kernel takes the pure twins; so does a free-threaded Python, which has no such API yet. With
KLAMM_KERNEL=required in the environment a build without it fails, with KLAMM_KERNEL=none there is none (`make wheel`).
"""

import os
import sysconfig

from setuptools import Extension, setup

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
    depends=[f"{FOLDER}/{name}.h" for name in ("decode", "keymap", "module", "out", "records", "rows")],
    define_macros=[("Py_LIMITED_API", "0x030B0000")],
    py_limited_api=True,
    optional=WANTED != "required",
)

if WANTED == "none" or sysconfig.get_config_var("Py_GIL_DISABLED"):
    setup()
else:
    setup(ext_modules=[kernel], options={"bdist_wheel": {"py_limited_api": "cp311"}})
