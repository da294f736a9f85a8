"""Turns tables into code when they are first used: constructors, and encoders and decoders for each version.

The result is kept on the class. `encoder_source(layout_of(ProduceRequest, 9)).text()` is what was generated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm.wire.decoder import decoder_source
from klamm.wire.defaults import default_of, is_shared
from klamm.wire.encoder import encoder_source
from klamm.wire.layout import layout_of
from klamm.wire.schema import Field, Struct
from klamm.wire.source import Source

Encoder = Callable[[Any, list[Any], list[int]], None]
Decoder = Callable[[Any, int, int], tuple[Any, int]]


def compile_encoder(message: type[Struct], version: int) -> Encoder:
    source = encoder_source(layout_of(message, version))
    return source.compile("encode", f"<{message.__name__} v{version} encode>")


def compile_decoder(message: type[Struct], version: int) -> Decoder:
    source = decoder_source(layout_of(message, version))
    return source.compile("decode", f"<{message.__name__} v{version} decode>")


def compile_init(cls: type[Struct]) -> Callable[..., None]:
    """The constructor: keyword arguments with Kafka's defaults, a fresh list each time."""
    source = Source()
    source.bind("NEW", object())
    arguments, body = [], []
    for name, field in cls.__fields__.items():
        fresh = _fresh_default(source, field)
        arguments.append(f"{name}={'NEW' if fresh else _constant_default(source, field)}")
        body.append(f"self.{name} = {fresh} if {name} is NEW else {name}" if fresh else f"self.{name} = {name}")
    with source.block(f"def __init__(self{', *, ' if arguments else ''}{', '.join(arguments)}):"):
        for line in body or ["pass"]:
            source.line(line)
    return source.compile("__init__", f"<{cls.__name__} init>")


def _fresh_default(source: Source, field: Field) -> str:
    if field.default is None:
        return ""
    if field.kind == "array":
        return "[]"
    if field.kind == "struct" and not is_shared(field.of):
        return f"{source.bind(field.of.__name__, field.of)}()"
    return ""


def _constant_default(source: Source, field: Field) -> str:
    if field.kind == "struct" and field.default is not None:
        return source.bind(f"default_{field.of.__name__}", default_of(field.of))
    return repr(field.default)
