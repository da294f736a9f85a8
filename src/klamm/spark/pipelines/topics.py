"""The topics of a pipeline on its cluster: whether those it reads are there, and which of those it writes are not.
Nothing is created."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from klamm.admin import Resource
from klamm.blocking import Admin
from klamm.client.config import ClientConfig
from klamm.client.errors import ConfigError
from klamm.spark.options import Which
from klamm.spark.pipelines.mistakes import Mistake, Place
from klamm.spark.pipelines.model import Pipeline
from klamm.spark.pipelines.texts import whole_names

_AUTO_CREATE: Final = "auto.create.topics.enable"


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


@dataclass(frozen=True)
class _Cluster:
    names: frozenset[str]
    creates: bool
    """A topic that somebody writes to comes into being."""


def look_up(pipeline: Pipeline) -> TopicsFound:
    """`ClientError` if the cluster does not answer."""
    found = TopicsFound()
    try:
        unknown = ClientConfig.from_mapping(pipeline.client).warnings
        found.warnings += [Mistake(pipeline.at("kafka"), warning) for warning in unknown]
        cluster = _ask(pipeline, found)
    except ConfigError as error:
        found.asked = False
        found.mistakes.append(Mistake(_place_of(error, pipeline), error.text, error.hint))
    else:
        _compare(pipeline, cluster, found)
    return found


def _place_of(error: ConfigError, pipeline: Pipeline) -> Place:
    """An option is told by its name. That of the addresses has a key of its own."""
    if error.text.startswith("bootstrap.servers"):
        return pipeline.at("bootstrap")
    named = next((name for name in pipeline.kafka if error.text.startswith(name)), None)
    return pipeline.at("kafka" if named is None else f"kafka.{named}")


def _ask(pipeline: Pipeline, found: TopicsFound) -> _Cluster:
    logging.getLogger("klamm.client").addHandler(logging.NullHandler())  # what it would log is told here
    with Admin(config=pipeline.client) as admin:
        names = frozenset(admin.list_topics())
        read = {one.topic for one in pipeline.inputs if one.topic is not None}
        described = admin.describe_topics(sorted((read | {topic for topic, _ in _written(pipeline)}) & names)).check()
        found.partitions = {name: len(one.partitions) for name, one in described.items()}
        return _Cluster(names, _creates(admin))


def _creates(admin: Admin) -> bool:
    """If the cluster does not tell, it is as Kafka's default is."""
    brokers = [Resource.broker(one) for one in admin.describe_cluster().brokers]
    answers = admin.describe_configs(brokers, [_AUTO_CREATE]).values()
    return all(answer[_AUTO_CREATE].value != "false" for answer in answers if _AUTO_CREATE in answer)


def _written(pipeline: Pipeline) -> Iterator[tuple[str, Place]]:
    for _, output in pipeline.outputs:
        if output.topic is not None:
            yield output.topic, output.at("topic")
    for one in pipeline.inputs:
        if one.dead_letters is not None:
            yield one.dead_letters, one.at("dead_letters")


def _compare(pipeline: Pipeline, cluster: _Cluster, found: TopicsFound) -> None:
    written = dict(_written(pipeline))
    for one in pipeline.inputs:
        if one.topic is not None and one.topic not in cluster.names and one.topic not in written:
            text, hint = f"The cluster has no topic {one.topic}.", f"Create it: klamm topic create {one.topic}."
            found.mistakes.append(Mistake(one.at("topic"), text, hint))
        if one.pattern is not None:
            found.matching[one.name] = sorted(filter(Which(pattern=whole_names(one.pattern)).fits, cluster.names))
            if not found.matching[one.name]:
                text = f"No topic fits the pattern {one.pattern} yet."
                found.warnings.append(Mistake(one.at("pattern"), text, "It has to fit the whole name."))
    for topic, place in written.items():
        if topic not in cluster.names and not cluster.creates:
            text = f"The cluster has no topic {topic}, and makes none by itself ({_AUTO_CREATE} is false)."
            found.mistakes.append(Mistake(place, text, f"Create it: klamm topic create {topic}."))
