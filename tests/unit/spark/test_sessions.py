"""What `klamm.spark.session` sets before Spark starts. That Spark takes it, tests on Spark show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from klamm.spark import java, sessions, worker_python

CLUSTER = "spark://somewhere:7077"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """It is put back afterwards."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP", "SPARK_CONF_DIR", "JAVA_HOME"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(java, "find", lambda: java.Java(Path("/java")))
    return monkeypatch


def said_by(python: str, expression: str, **environment: str) -> str:
    command = [python, "-c", f"import sys; print({expression})"]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, **environment}
    ).stdout.rstrip()


def test_workers_take_pyspark_as_it_is_installed_and_all_else_from_where_spark_says() -> None:
    pytest.importorskip("pyspark")
    spark = "/opt/spark/python/lib"
    paths = f"/mine:{spark}/pyspark.zip:{spark}/py4j-0.10.9.9-src.zip:/a place:/opt/spark/jars/spark-core.jar"
    python = worker_python.find()
    found = said_by(
        python, "[path for path in sys.path if 'spark' in path or path in ('/mine', '/a place')]", PYTHONPATH=paths
    )
    assert found == str(["/mine", "/a place", "/opt/spark/jars/spark-core.jar"])


@pytest.mark.parametrize("master", ["local", "local[*]", "local[4]", "local[2,3]", "local-cluster[2,1,1024]"])
def test_on_this_machine_nothing_listens_to_the_outside_and_the_workers_are_this_python(
    master: str, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("PYSPARK_PYTHON", "/another/python")
    sessions.prepare(master)
    assert said_by(os.environ["PYSPARK_PYTHON"], "sys.executable") == sys.executable
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert os.environ["SPARK_LOCAL_IP"] == sessions.defaults(master)["spark.driver.host"] == "127.0.0.1"
    assert os.environ["JAVA_HOME"] == "/java"


def test_on_a_cluster_addresses_are_left_alone_and_the_workers_are_the_python_that_somebody_has_chosen(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv("PYSPARK_PYTHON", "/opt/python")
    sessions.prepare(CLUSTER)
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
    assert "SPARK_LOCAL_IP" not in os.environ
    assert not {"spark.driver.host", "spark.sql.shuffle.partitions"} & sessions.defaults(CLUSTER).keys()


def test_what_is_given_comes_before_the_defaults_and_virtual_machine_options_are_kept() -> None:
    pytest.importorskip("pyspark")
    given = {"spark.ui.enabled": "true", "spark.driver.extraJavaOptions": "-Xss4m"}
    found = sessions._complete(given)
    assert found["spark.master"] == "local[*]"
    assert found["spark.ui.enabled"] == "true"
    assert found["spark.driver.bindAddress"] == "127.0.0.1"
    if "-Dlog4j2" in found["spark.driver.extraJavaOptions"]:  # not if this process has a virtual machine already
        assert found["spark.driver.extraJavaOptions"].endswith(" -Xss4m")


@pytest.mark.parametrize("options", ["-Dlog4j2.configurationFile=mine.properties", "-Xss4m -Dlog4j2.level=debug"])
def test_log_settings_of_somebody_else_are_kept(options: str) -> None:
    assert sessions._logging({"spark.driver.extraJavaOptions": options}) == {}
    assert Path(sessions._LOG_SETTINGS).is_file()


def test_a_folder_with_settings_for_spark_is_taken_to_have_some_for_its_log(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("SPARK_CONF_DIR", "/etc/spark")
    assert sessions._logging({}) == {}
