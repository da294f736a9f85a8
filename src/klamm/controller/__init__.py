"""The controller: the only writer of the metadata log. Commands decide, purely; the driver appends and publishes.

results = await controller.create_topics([NewTopic("orders", num_partitions=3)])
"""

from klamm.controller.commands import Decision, ProducerIdBlock
from klamm.controller.configs import AlteredResource, ConfigChange, ConfigOperation, ResourceChange, check_form
from klamm.controller.driver import Controller
from klamm.controller.names import is_valid_topic_name, problem_with_name
from klamm.controller.registration import BrokerRegistration
from klamm.controller.topics import CreatedTopic, DeletedTopic, NewTopic, TopicToDelete

__all__ = [
    "AlteredResource",
    "BrokerRegistration",
    "ConfigChange",
    "ConfigOperation",
    "Controller",
    "CreatedTopic",
    "Decision",
    "DeletedTopic",
    "NewTopic",
    "ProducerIdBlock",
    "ResourceChange",
    "TopicToDelete",
    "check_form",
    "is_valid_topic_name",
    "problem_with_name",
]
