"""The options of a client, under Kafka's names: `request.timeout.ms` is the field `request_timeout_ms`.

A field of `ClientConfig` is the whole declaration of an option: kind, default, bounds and a line of doc. Unknown names
are no error, because one properties file often serves several clients; they come back as warnings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from klamm.client.connection_options import ALIASES, ConnectionOptions
from klamm.client.declare import option as _option
from klamm.client.declare import time as _time
from klamm.client.errors import ConfigError
from klamm.core.options.listeners import split_address
from klamm.core.options.option import Kind, Option, OptionError

DEFAULT_PORT: Final = 9092
_SUGGESTION_CUTOFF: Final = 0.85


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig(ConnectionOptions):
    bootstrap_servers: tuple[str, ...] = _option(Kind.LIST, (), "addresses of brokers to ask for all the others")
    client_id: str = _option(Kind.STRING, "klamm", "the name that brokers see and put into their logs")
    client_rack: str = _option(Kind.STRING, "", "where this client runs")

    request_timeout_ms: int = _time(30_000, "how long to wait for the answer to one request", at_least=1)
    default_api_timeout_ms: int = _time(60_000, "how long an operation may take, with all its retries", at_least=1)
    retry_backoff_ms: int = _time(100, "how long to wait before a failed request is tried again")
    retry_backoff_max_ms: int = _time(1000, "the most that this grows to while it goes on failing")
    metadata_max_age_ms: int = _time(300_000, "after how long leaders and topics are asked for again, changed or not")
    metadata_max_idle_ms: int = _time(300_000, "for how long a topic is asked for again that nobody sends to any more",
                                      at_least=5_000)  # fmt: skip

    acks: str = _option(Kind.STRING, "all", "who must have a record before it counts as written",
                        choices=("all", "-1", "0", "1"))  # fmt: skip
    enable_idempotence: bool = _option(Kind.BOOL, True, "let the broker drop what a retry would write twice")
    compression_type: str = _option(Kind.STRING, "none", "how batches are compressed",
                                    choices=("none", "gzip", "snappy", "lz4", "zstd"))  # fmt: skip
    batch_size: int = _option(Kind.INT, 16_384, "a batch of more bytes than this is sent at once", at_least=0)
    linger_ms: int = _time(5, "how long a smaller batch waits for more records")
    buffer_memory: int = _option(Kind.LONG, 32 << 20, "bytes of records that may wait to be sent", at_least=1)
    max_request_size: int = _option(Kind.INT, 1 << 20, "the largest record, and the largest request", at_least=1)
    max_in_flight_requests_per_connection: int = _option(Kind.INT, 5, "produce requests to one broker at a time",
                                                         at_least=1)  # fmt: skip
    delivery_timeout_ms: int = _time(120_000, "after how long a record that could not be sent is given up")
    retries: int = _option(Kind.INT, 0x7FFFFFFF, "how often a batch goes again; better limit delivery.timeout.ms",
                           at_least=0)  # fmt: skip
    max_block_ms: int = _time(60_000, "how long sending may wait for room in buffer.memory, or for a topic's leaders")
    compression_gzip_level: int | None = _option(Kind.INT, None, "from 1, quick, to 9, small", at_least=-1, at_most=9)
    compression_lz4_level: int | None = _option(Kind.INT, None, "from 1, quick, to 17, small", at_least=1, at_most=17)
    compression_zstd_level: int | None = _option(Kind.INT, None, "up to 22; below zero it is quicker still",
                                                 at_least=-131_072, at_most=22)  # fmt: skip
    partitioner_class: str = _option(Kind.STRING, "", "default, sticky, round_robin, or a class of Java's that does so")
    partitioner_ignore_keys: bool = _option(Kind.BOOL, False, "choose partitions as if records had no keys")
    partitioner_adaptive_partitioning_enable: bool = _option(Kind.BOOL, True, "give quicker brokers more records")
    partitioner_availability_timeout_ms: int = _time(0, "for how long a broker may take nothing before its partitions "
                                                        "are avoided; 0: for ever")  # fmt: skip
    transactional_id: str = _option(Kind.STRING, "", "the name under which a producer's transactions go on and are "
                                                     "fenced; empty: no transactions")  # fmt: skip
    transaction_timeout_ms: int = _time(60_000, "after how long a transaction that was left open is aborted",
                                        at_least=1)  # fmt: skip
    transaction_two_phase_commit_enable: bool = _option(Kind.BOOL, False, "transactions are ended by others, and never "
                                                                          "time out")  # fmt: skip

    fetch_min_bytes: int = _option(Kind.INT, 1, "a fetch waits until there is this much", at_least=0)
    fetch_max_bytes: int = _option(Kind.INT, 50 << 20, "the most that one fetch brings", at_least=1)
    fetch_max_wait_ms: int = _time(500, "how long a fetch waits when there is too little")
    max_partition_fetch_bytes: int = _option(Kind.INT, 1 << 20, "the most of one partition in a fetch", at_least=1)
    isolation_level: str = _option(Kind.STRING, "read_uncommitted", "whether records of open transactions are read",
                                   choices=("read_uncommitted", "read_committed"))  # fmt: skip
    check_crcs: bool = _option(Kind.BOOL, True, "accepted; checksums are always verified")
    auto_offset_reset: str = _option(Kind.STRING, "latest", "where to begin without an offset, or when it is gone: "
                                                            "earliest, latest, none, by_duration:PT1H")  # fmt: skip
    max_poll_records: int = _option(Kind.INT, 500, "how many records `getmany` gives at most, unless told", at_least=1)
    allow_auto_create_topics: bool = _option(Kind.BOOL, True, "whether asking for a topic may create it")
    exclude_internal_topics: bool = _option(Kind.BOOL, True, "whether a pattern leaves out the brokers' own topics")
    prefetch_max_bytes: int = _option(Kind.LONG, 16 << 20, "fetch no more while this much waits to be taken",
                                      at_least=1)  # fmt: skip
    group_id: str = _option(Kind.STRING, "", "the group to share topics with, and to commit offsets for; empty: none")
    group_instance_id: str = _option(Kind.STRING, "", "a name that a member keeps over restarts (static membership); "
                                                      "empty: none")  # fmt: skip
    group_protocol: str = _option(Kind.STRING, "classic", "how the group shares topics: classic, or consumer (KIP-848: "
                                                          "the broker assigns)",
                                  choices=("classic", "consumer"))  # fmt: skip
    group_remote_assignor: str = _option(Kind.STRING, "", "which of the broker's assignors to use (group.protocol="
                                                          "consumer); empty: the broker's choice")  # fmt: skip
    partition_assignment_strategy: Any = field(default="range,cooperative-sticky", metadata={"python": (
        "who reads what, best first (group.protocol=classic): range, roundrobin, sticky, cooperative-sticky, Assignors"
    )})  # fmt: skip
    session_timeout_ms: int = _time(45_000, "a member not heard of for so long is out (group.protocol=classic)",
                                    at_least=1)  # fmt: skip
    heartbeat_interval_ms: int = _time(3_000, "how often a member says that it is there (group.protocol=classic)",
                                       at_least=1)  # fmt: skip
    max_poll_interval_ms: int = _time(300_000, "a member that asks for no records for so long leaves its group",
                                      at_least=1)  # fmt: skip
    enable_auto_commit: bool = _option(Kind.BOOL, True, "commit what the application was given before it asks for more")
    auto_commit_interval_ms: int = _time(5_000, "how often that is done")

    warnings: tuple[str, ...] = ()

    @classmethod
    def from_options(cls, config: Mapping[str, object] | None, given: Mapping[str, object]) -> ClientConfig:
        """Options as clients take them: `config` by Kafka's names, with dots; `given`, keyword arguments, with
        underscores. A keyword beats the mapping; None is the default."""
        merged = {**(config or {}), **{name.replace("_", "."): value for name, value in given.items()}}
        return cls.from_mapping({name: value for name, value in merged.items() if value is not None})

    @classmethod
    def from_mapping(cls, given: Mapping[str, object]) -> ClientConfig:
        """Options by their Kafka names. `ConfigError` says all that is wrong at once."""
        table = options()
        values: dict[str, Any] = {}
        warnings: list[str] = []
        problems: list[str] = []
        objects = _python_objects()
        for given_name, text in given.items():
            name = ALIASES.get(given_name, given_name)
            if name in objects:
                values[_field_name(name)] = text
                continue
            option = table.get(name)
            if option is None:
                warnings.append(_unknown(name, table))
                continue
            try:
                values[_field_name(name)] = option.parse(text)
            except OptionError as error:
                problems.extend(error.problems)
        if problems:
            raise ConfigError("; ".join(problems) + ".")
        config = cls(**values, warnings=tuple(warnings))
        config._check()
        return config

    def _check(self) -> None:
        self.check_security()
        self.addresses()
        if self.group_id and self.group_protocol == "classic" and self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError("heartbeat.interval.ms must be less than session.timeout.ms, a third of it at most.")
        if self.transactional_id and not (self.enable_idempotence and self.acks in ("all", "-1")):
            raise ConfigError("transactional.id needs enable.idempotence=true and acks=all.")
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > MAX_IDEMPOTENT_IN_FLIGHT:
            raise ConfigError(
                f"max.in.flight.requests.per.connection={self.max_in_flight_requests_per_connection} is too much "
                f"for an idempotent producer: brokers remember {MAX_IDEMPOTENT_IN_FLIGHT} batches.",
            )

    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Hosts and ports to start from; a port that is left out is 9092."""
        found = []
        for text in self.bootstrap_servers:
            bare = ":" not in text or text.endswith("]")
            try:
                host, port = split_address(f"{text}:{DEFAULT_PORT}" if bare else text)
            except OptionError as error:
                raise ConfigError(f"bootstrap.servers: {error}.", "Write HOST:PORT, several with commas.") from None
            if not host or not port:
                raise ConfigError(f"bootstrap.servers: {text!r} is not HOST:PORT.")
            found.append((host, port))
        return tuple(found)


MAX_IDEMPOTENT_IN_FLIGHT: Final = 5
"""How many batches of a producer a broker can tell apart from new ones when they come again."""


def options() -> dict[str, Option]:
    """The table, by Kafka's names."""
    table = {}
    for declared in fields(ClientConfig):
        if "kind" in declared.metadata:
            name = declared.name.replace("_", ".")
            default: Any = declared.default
            about = declared.metadata
            table[name] = Option(name, about["kind"], default, about["doc"], **about["bounds"])
    return table


def _python_objects() -> set[str]:
    """The names of options that take no text."""
    return {declared.name.replace("_", ".") for declared in fields(ClientConfig) if "python" in declared.metadata}


def _field_name(name: str) -> str:
    return name.replace(".", "_")


def _unknown(name: str, table: dict[str, Option]) -> str:
    import difflib

    near = difflib.get_close_matches(name, table, n=1, cutoff=_SUGGESTION_CUTOFF)
    return f"{name} is not used by this client" + (f"; did you mean {near[0]}?" if near else "")
