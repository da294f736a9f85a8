"""Options of topics, brokers, groups and whatever else has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from klamm.client.admin.asking import Part, ask_controller, each, needs, patiently
from klamm.client.admin.results import Results, V, failure
from klamm.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from klamm.wire.messages.k32_describe_configs import DescribeConfigsResourceResult, DescribeConfigsResult

_MAX_RESOURCES: Final = 500  # in one DescribeConfigs: an answer has some 40 options for each
_DOCUMENTATION: Final = 3  # DescribeConfigs: the version that came with it
_ALL_TYPES: Final = 1  # ListConfigResources: before it, only subscriptions to clients' metrics

Setting = str | int | float | None
"""What an option may be set to. It goes over the wire as text."""


class ResourceType(IntEnum):
    """What can have options; Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value comes from; Kafka's numbers."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        return cls.UNKNOWN


class ConfigOperation(IntEnum):
    """What is done to an option; the last two are for those that are lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Resource:
    """Something with options. A broker's name is its id; "" stands for the defaults of all brokers."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        if self.type is ResourceType.BROKER and not self.name:
            return "all brokers"
        return f"{self.type.name.lower().replace('_', ' ')} {self.name}"

    @classmethod
    def topic(cls, name: str) -> Resource:
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int | None) -> Resource:
        """None: the defaults of all brokers."""
        return cls(ResourceType.BROKER, "" if broker_id is None else str(broker_id))

    @classmethod
    def group(cls, group_id: str) -> Resource:
        return cls(ResourceType.GROUP, group_id)


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A place where the value might have come from, in the order in which they are looked at."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """`value` is None where it is secret. `type` is Kafka's number for it, 0 where the broker does not say."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    type: int = 0
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


@dataclass(frozen=True, slots=True)
class ConfigChange:
    name: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


Changes = Mapping[str, Setting] | Iterable[ConfigChange]
Config = Mapping[str, ConfigEntry]


class Configs(Part):
    async def describe_configs(
        self,
        resources: Iterable[Resource],
        names: Iterable[str] | None = None,
        *,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> Results[Resource, Config]:
        """The options of each, by name: all, or `names`. What is documented depends on the broker."""
        from klamm.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource

        keys = None if names is None else list(names)

        async def ask(node: int | None, some: Sequence[Resource]) -> Any:
            version = (await self._cluster.connection(node)).versions.best(DescribeConfigsRequest)
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=one.type, resource_name=one.name, configuration_keys=keys)
                    for one in some
                ],
                include_synonyms=synonyms,
                include_documentation=documentation and version >= _DOCUMENTATION,
            )
            return (await self._cluster.request(request, node=node, version=version)).results

        async def patient(node: int | None, some: Sequence[Resource]) -> Any:
            """One broker is there or not; but if any will do, another will."""
            return await (patiently(self._cluster, lambda: ask(None, some)) if node is None else ask(node, some))

        return await _ask_homes(resources, patient, _read_config)

    async def alter_configs(
        self, changes: Mapping[Resource, Changes], *, validate_only: bool = False
    ) -> Results[Resource, None]:
        """Change these options and no others: `{Resource.topic("a"): {"retention.ms": "1000"}}`; None takes an option
        back to its default. All changes to one resource are made, or none."""
        from klamm.wire.messages.k44_incremental_alter_configs import (
            AlterableConfig,
            AlterConfigsResource,
            IncrementalAlterConfigsRequest,
        )

        wanted = {resource: _listed(given) for resource, given in changes.items()}

        async def ask(node: int | None, some: Sequence[Resource]) -> Any:
            altered = [
                AlterConfigsResource(resource_type=one.type, resource_name=one.name, configs=[
                    AlterableConfig(name=change.name, config_operation=change.operation, value=change.value)
                    for change in wanted[one]
                ])
                for one in some
            ]  # fmt: skip
            request = IncrementalAlterConfigsRequest(resources=altered, validate_only=validate_only)
            if node is not None:
                return (await self._cluster.request(request, node=node)).responses
            answer = await ask_controller(self._cluster, request, lambda told: (r.error_code for r in told.responses))
            return answer.responses

        return await _ask_homes(wanted, ask, lambda told: None)

    async def list_config_resources(self, types: Iterable[ResourceType] = ()) -> list[Resource]:
        """What there is that has options, or could: of these types, or of all."""
        from klamm.wire.messages.k74_list_config_resources import ListConfigResourcesRequest

        wanted = list(types)

        async def ask() -> list[Resource]:
            version = await self._cluster.version(ListConfigResourcesRequest)
            if wanted != [ResourceType.CLIENT_METRICS]:
                needs(version, _ALL_TYPES, "to list resources of all types")
            asked = [int(one) for one in wanted] if version >= _ALL_TYPES else []
            answer = await self._cluster.request(ListConfigResourcesRequest(resource_types=asked), version=version)
            if (error := failure(answer.error_code, "resources")) is not None:
                raise error
            known = {int(one) for one in ResourceType}
            return [
                Resource(ResourceType(one.resource_type), one.resource_name)
                for one in answer.config_resources
                if one.resource_type in known
            ]

        return sorted(await patiently(self._cluster, ask), key=lambda one: (one.type, one.name))


async def _ask_homes(
    resources: Iterable[Resource],
    ask: Callable[[int | None, Sequence[Resource]], Awaitable[Any]],
    read: Callable[[Any], V],
) -> Results[Resource, V]:
    """Ask those who know, in as few questions as there may be. One that fails fails for all resources in it."""
    wanted = list(dict.fromkeys(resources))
    by_home: dict[int | None, list[Resource]] = {}
    for resource in wanted:
        by_home.setdefault(_home(resource), []).append(resource)
    parts = [
        (home, tuple(some[first : first + _MAX_RESOURCES]))
        for home, some in by_home.items()
        for first in range(0, len(some), _MAX_RESOURCES)
    ]
    answers = await each(parts, lambda part: ask(*part))
    told: dict[Resource, V | ClientError] = {}
    for (_, some), error in answers.errors.items():
        told.update(dict.fromkeys(some, error))
    known = {(resource.type.value, resource.name): resource for resource in wanted}
    for one in (one for answer in answers.values() for one in answer):
        named = known.get((one.resource_type, one.resource_name))
        if named is not None:
            told[named] = failure(one.error_code, named, one.error_message) or read(one)
    return Results.of(wanted, told)


def _home(resource: Resource) -> int | None:
    """The broker that alone can answer about a resource; None: any, or for changes the controller."""
    own = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name
    return int(resource.name) if own else None


def setting_text(value: Setting) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


def _listed(given: Changes) -> list[ConfigChange]:
    if not isinstance(given, Mapping):
        return list(given)
    return [
        ConfigChange(name, setting_text(value), ConfigOperation.DELETE if value is None else ConfigOperation.SET)
        for name, value in given.items()
    ]


def _read_config(told: DescribeConfigsResult) -> Config:
    return {one.name: _entry(one) for one in sorted(told.configs, key=lambda one: one.name)}


def _entry(told: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        told.name,
        told.value,
        ConfigSource(told.config_source),
        told.read_only,
        told.is_sensitive,
        tuple(ConfigSynonym(one.name, one.value, ConfigSource(one.source)) for one in told.synonyms),
        told.config_type,
        told.documentation,
    )
