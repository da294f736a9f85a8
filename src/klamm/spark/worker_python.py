"""The Python of Spark's workers on this machine: this one, with PySpark as it is installed.

Spark puts a zip file of PySpark in front of everything else, for machines that have none. It has no byte code in it,
so every Python process that Spark starts would compile PySpark anew: 1.3 s of CPU instead of 0.4 s, and a query starts
half a dozen.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

_SCRIPT = """\
#!/bin/sh
set -f
IFS=:
kept=
for path in $PYTHONPATH; do
  case $path in
    */pyspark.zip | */py4j-*-src.zip) ;;
    *) kept=$kept${kept:+:}$path ;;
  esac
done
unset IFS
PYTHONPATH=$kept
export PYTHONPATH
exec %s "$@"
"""


def find() -> str:
    """What to set PYSPARK_PYTHON to: a script that is gone with this process. Where Spark is not the one that this
    Python has installed, its zip file is needed, and this is that Python itself."""
    import pyspark

    folder = os.path.dirname(pyspark.__file__)
    if not os.path.isdir(folder) or os.environ.get("SPARK_HOME", folder) != folder:
        return sys.executable
    scripts = Path(tempfile.mkdtemp(prefix="klamm-python-"))
    atexit.register(shutil.rmtree, scripts, ignore_errors=True)
    script = scripts / "python"
    script.write_text(_SCRIPT % shlex.quote(sys.executable))
    script.chmod(0o755)
    return str(script)
