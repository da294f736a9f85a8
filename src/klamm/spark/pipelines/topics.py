"""The topics of a pipeline on its cluster: whether those it reads are there, and which of those it writes are not."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from klamm.blocking import Admin
from klamm.client.config import ClientConfig
from klamm.client.errors import ClientError, ConfigError
from klamm.spark.options import Which
from klamm.spark.pipelines.mistakes import Mistake
from klamm.spark.pipelines.model import Pipeline


@dataclass
class TopicsFound:
    mistakes: list[Mistake] = field(default_factory=list)
    warnings: list[Mistake] = field(default_factory=list)
    partitions: dict[str, int] = field(default_factory=dict)
    """Of all topics that the pipeline names, if they are there."""
    matching: dict[str, list[str]] = field(default_factory=dict)
    """The topics that fit the pattern of an input, by its name."""
    asked: bool = True
    """The cluster has answered."""


def look_up(pipeline: Pipeline) -> TopicsFound:
    found = TopicsFound()
    try:
        unknown = ClientConfig.from_mapping(pipeline.client).warnings
    except ConfigError as error:
        found.mistakes.append(Mistake(pipeline.at("kafka"), error.text, error.hint))
        found.asked = False
        return found
    found.warnings += [Mistake(pipeline.at("kafka"), warning) for warning in unknown]
    written = {output.topic for _, output in pipeline.outputs} | {one.dead_letters for one in pipeline.inputs}
    try:
        logging.getLogger("klamm.client").addHandler(logging.NullHandler())  # what it would log is told here
        with Admin(config=pipeline.client) as admin:
            names = set(admin.list_topics())
            named = {one.topic for one in pipeline.inputs if one.topic} | {topic for topic in written if topic}
            described = admin.describe_topics(sorted(named & names)).check()
            found.partitions = {name: len(one.partitions) for name, one in described.items()}
    except ClientError as error:
        hint = f"{error.hint} Or leave the cluster out: --no-cluster.".strip()
        found.mistakes.append(Mistake(pipeline.at("bootstrap"), error.text, hint))
        found.asked = False
        return found
    for one in pipeline.inputs:
        if one.topic is not None and one.topic not in names and one.topic not in written:
            hint = f"Create it: klamm topic create {one.topic}."
            found.mistakes.append(Mistake(one.at("topic"), f"The cluster has no topic {one.topic}.", hint))
        if one.pattern is not None:
            found.matching[one.name] = sorted(filter(Which(pattern=one.pattern).fits, names))
            if not found.matching[one.name]:
                text = f"No topic fits the pattern {one.pattern} yet."
                found.warnings.append(Mistake(one.at("pattern"), text, "It has to fit the whole name."))
    return found
