"""What is told of what Spark and Python said."""

from __future__ import annotations

from klamm.spark.pipelines.failures import hint_for, innermost, plain

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
        "worse, and more"
    )


def test_an_error_without_a_message_is_told_by_its_name() -> None:
    assert plain('Traceback (most recent call last):\n  File "a.py", line 1\nKeyboardInterrupt\n') == (
        "KeyboardInterrupt"
    )


def test_conditions_and_places_of_spark_are_left_out() -> None:
    text = "[UNRESOLVED_COLUMN.X] A column `pgae` cannot be resolved. SQLSTATE: 42703; line 1 pos 7;\n'Project"
    assert plain(text) == "A column `pgae` cannot be resolved."
    assert plain("java.lang.IllegalStateException: Something\n\tat org.x.Y.z(Y.scala:1)") == "Something"
    assert plain("Failed.\nCaused by: java.io.IOException: No space left\n\tat x.Y.z(Z)") == "No space left"


def test_the_deepest_cause_that_says_something_counts_and_is_not_endless() -> None:
    assert innermost(["outer", "the reason", ""]) == "the reason"
    assert innermost([]) == "Spark does not say why."
    assert len(plain("x" * 5000)) == 1000


def test_state_that_does_not_fit_has_a_hint_where_it_is() -> None:
    told = "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema does not match existing state value schema."
    assert "/checkpoints/counts" in hint_for(["Job aborted", told], "/checkpoints/counts")
    assert hint_for(["Job aborted"], "/checkpoints/counts") == ""
