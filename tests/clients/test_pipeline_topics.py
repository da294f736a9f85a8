"""What `klamm pipeline check` finds out about topics, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

import klamm.testing
from klamm import Admin
from klamm.admin import NewTopic
from klamm.client.errors import ClientError

pytest.importorskip("yaml")

PIPELINE = """\
name: topics
bootstrap: {bootstrap}
inputs:
  views: {{topic: views, format: json, schema: a int}}
  all: {{pattern: log-.*, format: text}}
  back: {{topic: results, format: text}}
flows:
  some: {{sql: some.sql, output: {{topic: results}}}}
"""


@pytest.mark.parametrize("creates", [True, False])
def test_topics_are_looked_up_and_none_is_created(tmp_path: Path, creates: bool) -> None:
    from klamm.spark.pipelines.check import _topics
    from klamm.spark.pipelines.spec import load
    from klamm.spark.pipelines.topics import look_up

    (tmp_path / "some.sql").write_text("SELECT 1")
    with (
        klamm.testing.broker(auto_create_topics_enable=creates) as broker,
        Admin(bootstrap_servers=broker.bootstrap) as admin,
    ):
        (tmp_path / "pipeline.yml").write_text(PIPELINE.format(bootstrap=broker.bootstrap))
        pipeline = load(str(tmp_path))
        found = look_up(pipeline)
        missing = ["The cluster has no topic views."]
        if not creates:
            missing += [
                f"The cluster has no topic {name}, and makes none by itself" for name in ("views.dead", "results")
            ]
        told = [(one.line, one.text.split(" (")[0]) for one in sorted(found.mistakes)]
        assert sorted(text for _, text in told) == sorted(missing)
        assert [one.line for one in found.warnings] == [5]
        assert not admin.list_topics()
        admin.create_topics(
            [NewTopic(name, partitions=2) for name in ("views", "results", "views.dead", "log-a")]
        ).check()
        found = look_up(pipeline)
        assert not found.mistakes and not found.warnings and found.asked
        assert found.partitions == {"views": 2, "results": 2, "views.dead": 2} and found.matching == {"all": ["log-a"]}
    with pytest.raises(ClientError):
        look_up(pipeline)
    found = _topics(pipeline)
    assert not found.asked
    (gone,) = found.mistakes
    assert gone.line == 2 and "--no-cluster" in gone.hint
