"""Random requests against the pure commands, next to the simplest model of what topics there are."""

from __future__ import annotations

from random import Random

from controller_setup import Ids, image_with, play
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.controller.topics import NewTopic, TopicToDelete, create_topics, delete_topics
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicId
from klamm.core.options import Options

NAMES = st.sampled_from(["a", "b", "a.b", "a_b", "..", "", "c d"])
CONFIGS = st.sampled_from([(), (("retention.ms", "5"),), (("retention.ms", "x"),)])
NEW = st.builds(NewTopic, NAMES, st.integers(-1, 3), st.integers(-1, 3), st.none(), CONFIGS)
CREATE = st.tuples(st.just("create"), st.lists(NEW, max_size=4), st.booleans())
DELETE = st.tuples(st.just("delete"), st.lists(NAMES, max_size=4), st.booleans())


def may_be_created(topic, names, partitions, replicas):
    return (
        topic.name in ("a", "b", "a.b", "a_b")
        and topic.name.replace(".", "_") not in {name.replace(".", "_") for name in names}
        and partitions != 0
        and 0 != replicas <= 2
        and topic.configs != (("retention.ms", "x"),)
    )


@settings(deadline=None, max_examples=200)
@given(st.lists(CREATE | DELETE, max_size=10), st.integers(0, 100))
def test_topics_come_and_go_as_the_answers_say(commands, seed):
    options, rng, new_id = Options.from_mapping(), Random(seed), Ids()
    image, model = image_with(1, 2), {}
    for kind, items, flag in commands:
        if kind == "create":
            decision = create_topics(image, items, options=options, rng=rng, new_id=new_id, validate_only=flag)
            names = [topic.name for topic in items]
            assert [result.name for result in decision.reply] == list(dict.fromkeys(names))
            added = dict(model)
            for result, topic in zip(decision.reply, {t.name: t for t in items}.values(), strict=True):
                legal = names.count(topic.name) == 1 and may_be_created(
                    topic, added, topic.num_partitions, topic.replication_factor
                )
                assert (result.error is ErrorCode.NONE) == legal, result
                if legal:
                    added[topic.name] = (max(topic.num_partitions, 1), max(topic.replication_factor, 1))
            model = model if flag else added
        else:
            topics = [
                TopicToDelete(topic_id=TopicId(image.topics[name].id))
                if flag and name in image.topics
                else TopicToDelete(name)
                for name in items
            ]
            decision = delete_topics(image, topics, options=options)
            for name, result in zip(items, decision.reply, strict=True):
                assert (result.error is ErrorCode.NONE) == (name in model and items.count(name) == 1)
            model = {name: v for name, v in model.items() if items.count(name) != 1}
        if decision.records:
            image = play(image, decision.records)
        found = {t.name: (len(t.partitions), len(t.partitions[0].replicas)) for t in image.topics.values()}
        assert found == model
        assert all(p.leader == p.replicas[0] for t in image.topics.values() for p in t.partitions)
