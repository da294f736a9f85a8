"""What Spark and Python say becomes one line for whoever wrote the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from klamm.spark.pipelines.code import Files, Views
from klamm.spark.pipelines.mistakes import Place
from klamm.spark.pipelines.said import (
    bad_setting,
    failure,
    in_python,
    in_sql,
    innermost,
    plain,
    sentence,
    without_traces,
)

VIEWS = Views({"views": "input", "pages": "table"}, frozenset({"late"}))
AT = Place("activity/top.sql")


class SaidBySpark(Exception):
    def __init__(self, text: str, condition: str | None = None, **parameters: str) -> None:
        super().__init__(text)
        self.condition = condition
        self.parameters = parameters

    def getCondition(self) -> str | None:  # noqa: N802
        return self.condition

    def getMessageParameters(self) -> Mapping[str, str]:  # noqa: N802
        return self.parameters


NOT_FOUND = """\
[TABLE_OR_VIEW_NOT_FOUND] The table or view `{0}` cannot be found. Verify the spelling and correctness of the schema.
To tolerate the error on drop use DROP VIEW IF EXISTS. SQLSTATE: 42P01; line 3 pos 5;
'Aggregate [unresolvedalias(count(1))]
+- 'UnresolvedRelation [{0}], [], false
"""
SYNTAX = """
[PARSE_SYNTAX_ERROR] Syntax error at or near 'selec'. SQLSTATE: 42601 (line 2, pos 0)

== SQL ==
-- a
selec 1
^^^
"""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            SaidBySpark(NOT_FOUND.format("vews"), "TABLE_OR_VIEW_NOT_FOUND", relationName="`vews`"),
            "activity/top.sql:3:6: There is no view vews. Did you mean views?",
        ),
        (
            SaidBySpark(NOT_FOUND.format("late"), "TABLE_OR_VIEW_NOT_FOUND", relationName="`late`"),
            "activity/top.sql:3:6: The flow late comes later in pipeline.yml. Move it above the flow that uses it.",
        ),
        (
            SaidBySpark(
                "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `v`.`pag` cannot be resolved. SQLSTATE: 42703; "
                "line 1 pos 7;\n'Project ['pag]",
                "UNRESOLVED_COLUMN.WITH_SUGGESTION",
                objectName="`v`.`pag`",
                proposal="`v`.`at`, `v`.`page`",
            ),
            "activity/top.sql:1:8: There is no column pag. Did you mean page?",
        ),
        (
            SaidBySpark(SYNTAX, "PARSE_SYNTAX_ERROR", error="'selec'", hint=""),
            "activity/top.sql:2:1: Syntax error at or near 'selec'.",
        ),
        (
            SaidBySpark("[SOMETHING_ELSE] It is\nnot allowed SQLSTATE: 42000", "SOMETHING_ELSE"),
            "activity/top.sql:3:1: It is not allowed.",
        ),
    ],
)
def test_an_error_in_sql_is_one_line_with_its_place(error: SaidBySpark, expected: str) -> None:
    assert str(in_sql(error, "\n\nSELECT", AT, VIEWS)) == expected


def test_a_message_without_end_is_cut() -> None:
    assert len(plain("[X] " + "word " * 1000)) <= 601


def failing(source: str, file: Path) -> BaseException:
    file.write_text(source)
    try:
        exec(compile(source, str(file), "exec"), {})
    except BaseException as error:
        return error
    raise AssertionError("it did not fail")


def test_an_error_in_python_is_at_the_innermost_line_of_the_pipelines_own_files(tmp_path: Path) -> None:
    files = Files(str(tmp_path), "activity")
    default = Place("activity/flows.py", 7)
    source = "import json\n\ndef use(text):\n    return json.loads(text)\n\nuse('{')\n"
    mistake = in_python(failing(source, tmp_path / "flows.py"), files, default, VIEWS)
    assert str(mistake.place) == "activity/flows.py:4:12" and mistake.text.startswith("JSONDecodeError: ")
    mistake = in_python(failing("raise SystemExit", tmp_path / "flows.py"), files, default, VIEWS)
    assert str(mistake) == "activity/flows.py:1:1: SystemExit"
    mistake = in_python(ValueError("no"), files, default, VIEWS)
    assert str(mistake) == "activity/flows.py:7:1: ValueError: no."


# Of queries that have failed.

TASK = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task 0.0 in
stage 3.0 (TID 4) (localhost): org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/site-packages/pyspark/worker.py", line 1, in main
    process()
    ^^^^^^^^^
  File "/klamm/spark/sink/task.py", line 7, in write
    raise SparkError(
klamm.spark.errors.SparkError: A row has no topic: its column `topic` is null. Fill it, or give the option topic.

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
\tat java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace:"""


def test_the_error_of_a_python_worker_is_told_without_its_trace() -> None:
    told = "A row has no topic: its column `topic` is null. Fill it, or give the option topic."
    assert plain(TASK) == told
    assert innermost(["Query x terminated with exception: Job aborted", TASK]) == told


def test_of_several_tracebacks_the_last_one_counts() -> None:
    inner = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: bad\n'
    outer = 'Traceback (most recent call last):\n  File "b.py", line 2\nRuntimeError: worse,\nand more\n\n\tat x.Y(Z)\n'
    assert plain(f"{inner}\nDuring handling of the above exception, another exception occurred:\n\n{outer}") == (
        "worse, and more."
    )


def test_an_error_without_a_message_is_told_by_its_name() -> None:
    assert plain('Traceback (most recent call last):\n  File "a.py", line 1\nKeyboardInterrupt\n') == (
        "KeyboardInterrupt."
    )


def test_conditions_and_places_of_spark_are_left_out() -> None:
    text = "[UNRESOLVED_COLUMN.X] A column `pgae` cannot be resolved. SQLSTATE: 42703; line 1 pos 7;\n'Project"
    assert plain(text) == "A column `pgae` cannot be resolved."
    text = "[CAST] The value 'x' is malformed. SQLSTATE: 22018\n== SQL (line 1, position 3) ==\nSELECT\n^^^^\n"
    assert plain(text) == "The value 'x' is malformed."
    assert plain("java.lang.IllegalStateException: Something\n\tat org.x.Y.z(Y.scala:1)") == "Something."
    assert plain("Failed.\nCaused by: java.io.IOException: No space left\n\tat x.Y.z(Z)") == "No space left."


def test_the_deepest_cause_that_says_something_counts_and_is_not_endless() -> None:
    assert innermost(["outer", "the reason", ""]) == "the reason."
    assert innermost([]) == "Spark does not say why."


def test_a_checkpoint_that_does_not_fit_is_a_sentence_that_says_where_it_is() -> None:
    told = "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema does not match existing value schema. "
    told += "If you want to force running the query without schema validation, please set it to false. SQLSTATE: 42K06"
    assert plain(told) == "Provided value schema does not match existing value schema."
    anew = "Change that back, or remove the folder /checkpoints/counts to begin anew."
    assert failure(["Job aborted", told], "/checkpoints/counts") == (
        "What it remembers does not fit what it does now.",
        anew,
    )
    told = (
        "assertion failed: There are [1] sources in the checkpoint offsets and now there are [2] sources requested by"
    )
    assert failure(["Query terminated", told], "/checkpoints/counts") == (
        "It read 1 input when its checkpoint was made, and is to read 2 now.",
        anew,
    )
    lost = "views-0 is gone. Set failOnDataLoss=false to go on, or start anew with another checkpoint."
    assert failure([lost], "/checkpoints/counts") == (lost, "Its checkpoint is the folder /checkpoints/counts.")
    assert "at the top" in failure(["No module named 'helper'"], "/checkpoints/counts")[1]
    assert failure(["Job aborted"], "/checkpoints/counts") == ("Job aborted.", "")


# Of a Spark that does not start.

CALLED = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkIllegalArgumentException: [INVALID_CONF_VALUE.TYPE_MISMATCH] The value 'two' in the config \
"spark.task.cpus" is invalid. It should be a/an 'decimal' value. SQLSTATE: 22022
\tat org.apache.spark.internal.config.ConfigHelpers$.toNumber(ConfigBuilder.scala:36)
"""
NO_JAVA_YET = "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."
HEAP = "Invalid maximum heap size: -Xmxlots\nError: Could not create the Java Virtual Machine.\n"


def test_the_setting_that_spark_does_not_start_with_is_found() -> None:
    settings = {"spark.task": "1", "spark.task.cpus": "two", "spark.driver.memory": "lots"}
    told = "The value 'two' in the config \"spark.task.cpus\" is invalid. It should be a/an 'decimal' value."
    assert plain(CALLED) == told
    assert bad_setting(settings, CALLED, "") == ("spark.task.cpus", told)
    assert bad_setting(settings, NO_JAVA_YET, HEAP) == ("spark.driver.memory", "Invalid maximum heap size: -Xmxlots.")
    assert bad_setting({"spark.task": "1"}, CALLED, HEAP) is None
    assert bad_setting(settings, NO_JAVA_YET, "no space left") is None


def test_an_error_of_java_is_told_without_the_name_of_what_brought_it() -> None:
    protocol = pytest.importorskip("py4j.protocol")
    said = "An error occurred while calling o1.load.\n: org.apache.spark.SparkException: t.csv is not a Parquet file\n"
    assert sentence(protocol.Py4JError(said)) == ("t.csv is not a Parquet file.", "")


def test_a_log_is_shown_without_traces() -> None:
    log = "WARNING: Using incubator modules: jdk.vector\nNo such host\n\tat a.B.c(D.scala:1)\n\t... 2 more\n\n"
    assert without_traces(log) == "No such host"
