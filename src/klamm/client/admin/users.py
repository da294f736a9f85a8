"""What belongs to users and clients: quotas, and the passwords with which they log in by SCRAM."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final

from klamm.client.admin.asking import Part, ask_controller, patiently, several
from klamm.client.admin.results import Results, failure
from klamm.client.errors import ClientError

_EXACT: Final = 0  # how DescribeClientQuotas takes one part of a filter
_DEFAULT: Final = 1
_ANY: Final = 2
_SALT_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """Whom a quota is for: types with names, None for the default of that type.

    QuotaEntity.of(user="anna", client_id="reports"); QuotaEntity.of(user=None); QuotaEntity.of(ip="10.0.0.1")
    """

    parts: tuple[tuple[str, str | None], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(sorted(self.parts)))  # so that the same are equal

    @classmethod
    def of(cls, **names: str | None) -> QuotaEntity:
        return cls(tuple((kind.replace("_", "-"), name) for kind, name in names.items()))

    def __str__(self) -> str:
        return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in self.parts)


class AnyName(Enum):
    """Stands for every name in a `QuotaFilter`."""

    ANY_NAME = "any name"


ANY_NAME: Final = AnyName.ANY_NAME


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """Types of entities (`user`, `client-id`, `ip`) with a name, None for the default, or ANY_NAME for all of them.
    Without any, every quota there is. With `strict`, only entities that have no other type."""

    parts: Mapping[str, str | AnyName | None] = field(default_factory=dict)
    strict: bool = False


class ScramMechanism(IntEnum):
    """Kafka's numbers."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @classmethod
    def _missing_(cls, value: object) -> ScramMechanism:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ScramCredential:
    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """Set a user's password. It does not leave this process; what is made of it with the salt does."""

    user: str
    mechanism: ScramMechanism
    password: str = field(repr=False)
    iterations: int = 8192
    salt: bytes | None = None
    """None: a random one."""


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    user: str
    mechanism: ScramMechanism


class Users(Part):
    async def describe_quotas(self, wanted: QuotaFilter | None = None) -> dict[QuotaEntity, dict[str, float]]:
        """Quotas that were set, by whom they are for."""
        from klamm.wire.messages.k48_describe_client_quotas import (
            ComponentData,
            DescribeClientQuotasRequest,
            DescribeClientQuotasResponse,
        )

        fits = wanted or QuotaFilter()
        components = []
        for kind, name in fits.parts.items():
            how = _EXACT if isinstance(name, str) else _DEFAULT if name is None else _ANY
            match = name if isinstance(name, str) else None
            components.append(ComponentData(entity_type=kind.replace("_", "-"), match_type=how, match=match))
        request = DescribeClientQuotasRequest(components=components, strict=fits.strict)

        async def ask() -> dict[QuotaEntity, dict[str, float]]:
            answer: DescribeClientQuotasResponse = await self._cluster.request(request)
            if (error := failure(answer.error_code, "quotas", answer.error_message)) is not None:
                raise error
            return {
                QuotaEntity(tuple((one.entity_type, one.entity_name) for one in entry.entity)): {
                    value.key: value.value for value in entry.values
                }
                for entry in answer.entries or ()
            }

        return await patiently(self._cluster, ask)

    async def alter_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> Results[QuotaEntity, None]:
        """Set these quotas (`producer_byte_rate`, `consumer_byte_rate`, `request_percentage` ...); None takes one
        away."""
        from klamm.wire.messages.k49_alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData

        if not changes:
            return Results({})
        entries = [
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts],
                ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
            )
            for entity, values in changes.items()
        ]
        request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
        answer = await ask_controller(self._cluster, request, lambda answer: (one.error_code for one in answer.entries))
        told: dict[QuotaEntity, ClientError | None] = {}
        for one in answer.entries:
            entity = QuotaEntity(tuple((part.entity_type, part.entity_name) for part in one.entity))
            told[entity] = failure(one.error_code, entity, one.error_message)
        return Results.of(changes, told)

    async def describe_scram_users(
        self, users: Iterable[str] | None = None
    ) -> Results[str, tuple[ScramCredential, ...]]:
        """Which mechanisms these users, or all that there are, can log in with."""
        from klamm.wire.messages.k50_describe_user_scram_credentials import (
            DescribeUserScramCredentialsRequest,
            DescribeUserScramCredentialsResponse,
            UserName,
        )

        names = None if users is None else list(dict.fromkeys(several(users)))
        if names == []:
            return Results({})
        asked = None if names is None else [UserName(name=name) for name in names]
        request = DescribeUserScramCredentialsRequest(users=asked)

        async def ask() -> Results[str, tuple[ScramCredential, ...]]:
            answer: DescribeUserScramCredentialsResponse = await self._cluster.request(request)
            if (error := failure(answer.error_code, "users", answer.error_message)) is not None:
                raise error
            told: dict[str, tuple[ScramCredential, ...] | ClientError] = {
                one.user: failure(one.error_code, f"user {one.user}", one.error_message)
                or tuple(ScramCredential(ScramMechanism(c.mechanism), c.iterations) for c in one.credential_infos)
                for one in answer.results
            }
            return Results.of(told if names is None else names, told)

        return await patiently(self._cluster, ask)

    async def alter_scram_users(self, changes: Iterable[ScramUpsertion | ScramDeletion]) -> Results[str, None]:
        """Set passwords and take them away. All changes of one user are made, or none."""
        from klamm.wire.messages.k51_alter_user_scram_credentials import (
            AlterUserScramCredentialsRequest,
            ScramCredentialDeletion,
            ScramCredentialUpsertion,
        )

        wanted = list(changes)
        if not wanted:
            return Results({})
        deletions, upsertions = [], []
        for change in wanted:
            if isinstance(change, ScramDeletion):
                deletions.append(ScramCredentialDeletion(name=change.user, mechanism=change.mechanism))
                continue
            salt = self._cluster.env.rng.randbytes(_SALT_BYTES) if change.salt is None else change.salt
            upsertions.append(
                ScramCredentialUpsertion(
                    name=change.user,
                    mechanism=change.mechanism,
                    iterations=change.iterations,
                    salt=salt,
                    salted_password=_salted(change, salt),
                )
            )
        request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
        answer = await ask_controller(self._cluster, request, lambda answer: (one.error_code for one in answer.results))
        told = {one.user: failure(one.error_code, f"user {one.user}", one.error_message) for one in answer.results}
        return Results.of(dict.fromkeys(change.user for change in wanted), told)


def _salted(change: ScramUpsertion, salt: bytes) -> bytes:
    """RFC 5802's SaltedPassword. Milliseconds of work; the broker, not we, says what is too few iterations."""
    digest = "sha512" if change.mechanism is ScramMechanism.SCRAM_SHA_512 else "sha256"
    return hashlib.pbkdf2_hmac(digest, change.password.encode(), salt, max(1, change.iterations))
