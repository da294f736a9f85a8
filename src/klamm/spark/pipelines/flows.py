"""Flows as DataFrames: SQL files and Python functions over views.

Every query reads its inputs itself, so a query has views of its own, which are made when somebody asks for them. A flow
that another one uses is a view for it: what it does is done again there, and nothing goes through its output.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from klamm.spark.errors import SparkError
from klamm.spark.pipelines import inputs
from klamm.spark.pipelines.code import SPARK, Files
from klamm.spark.pipelines.code import Views as Names
from klamm.spark.pipelines.mistakes import Mistake
from klamm.spark.pipelines.model import Flow, Input, Pipeline, Python, Sql, Table
from klamm.spark.pipelines.queries import NoSelect, quiet, views_named
from klamm.spark.pipelines.said import in_python, in_sql

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession


class BadFlow(SparkError):
    """A flow cannot be made into a query. Its text says where the mistake stands."""

    def __init__(self, mistake: Mistake) -> None:
        super().__init__(f"{mistake.place}: {mistake.text}", mistake.hint)
        self.mistake = mistake


class Views:
    """The views of one query, by their names. `group` shows how far it has read."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, group: str) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._group = group
        declared: list[Input | Table | Flow] = [*pipeline.inputs, *pipeline.tables, *pipeline.flows]
        self._declared: dict[str, Input | Table | Flow] = {one.name: one for one in declared}
        self._made: dict[str, DataFrame] = {}

    def frame(self, name: str) -> DataFrame:
        if name not in self._made:
            with quiet():
                self._made[name] = self._make(self._declared[name])
        return self._made[name]

    def _make(self, one: Input | Table | Flow) -> DataFrame:
        if isinstance(one, Input):
            return inputs.view(self._spark, self._pipeline, one, self._group)
        if isinstance(one, Table):
            return inputs.table(self._spark, one)
        return self._sql(one, one.code) if isinstance(one.code, Sql) else self._python(one, one.code)

    def names(self, flow: Flow) -> Names:
        """What this flow may use."""
        names = list(self._declared)
        at = names.index(flow.name)
        return Names(dict.fromkeys(names[:at], "view"), frozenset(names[at + 1 :]))

    def uses(self, flow: Flow) -> set[str]:
        """The views that it names, as far as they are there. `BadFlow` if it cannot be read."""
        code, names = flow.code, self.names(flow)
        if isinstance(code, Python):
            return set(code.arguments) & set(names.there)
        try:
            found = {name.lower() for name in views_named(self._spark, code.text)}
        except NoSelect as error:
            raise BadFlow(Mistake(code.place, error.text, error.hint)) from None
        except PySparkException as error:
            raise BadFlow(in_sql(error, code.text, code.place, names)) from error
        return {name for name in names.there if name.lower() in found}

    def _sql(self, flow: Flow, code: Sql) -> DataFrame:
        self.uses(flow)  # else a command would be carried out
        names = self.names(flow)
        for name in names.there:
            if _is_named(name, code.text):
                self.frame(name).createOrReplaceTempView(name)
        try:
            return self._spark.sql(code.text)
        except PySparkException as error:
            raise BadFlow(in_sql(error, code.text, code.place, names)) from error

    def _python(self, flow: Flow, code: Python) -> DataFrame:
        given = {name: self._spark if name == SPARK else self.frame(name) for name in code.arguments}
        try:
            made = call(code, given)
        except BadFlow:
            raise
        except (Exception, SystemExit) as error:  # it is somebody's own code
            raise BadFlow(in_python(error, Files.of(self._pipeline), code.place, self.names(flow))) from error
        if not isinstance(made, DataFrame):
            text = f"{code.function} returns a {type(made).__name__}, and should return a DataFrame."
            raise BadFlow(Mistake(code.place, text))
        return made


def _is_named(name: str, text: str) -> bool:
    """Whether a query may use this view. It may also be in a comment: then a view is made that nobody reads."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None


def call(code: Python, given: Mapping[str, object]) -> object:
    """What the function of this file makes of these views. The file is run anew, with its folder to import from. It and
    what it imports from there go to the workers by value: they need not have these files."""
    folder, _, name = code.file.rpartition("/")
    spec = importlib.util.spec_from_file_location(name.removesuffix(".py"), code.file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = dict(sys.modules)
    sys.path.insert(0, folder)
    try:
        sys.modules[module.__name__] = module
        spec.loader.exec_module(module)
        _send_by_value(folder, before)  # now: Spark may ask for it while the function is called
        function = getattr(module, code.function, None)
        if not callable(function):
            raise BadFlow(Mistake(code.place, f"There is no function {code.function} in this file."))
        return function(**given)
    finally:
        sys.path.remove(folder)
        for one in _send_by_value(folder, before):  # also what the function itself has imported
            del sys.modules[one]
            if one in before:
                sys.modules[one] = before[one]


def _send_by_value(folder: str, before: Mapping[str, ModuleType]) -> list[str]:
    """The names of modules of this folder that were not there before."""
    new = [name for name, one in list(sys.modules.items()) if before.get(name) is not one]
    found = [name for name in new if (getattr(sys.modules[name], "__file__", None) or "").startswith(f"{folder}/")]
    for name in found:
        cloudpickle.register_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]
    return found
