"""Decode, key filter and encode of records: the native functions where they could be built, else their pure twins.

Both do the same (the tests see to that), the native ones many times as fast; those that make no Python objects let go
of the interpreter lock. KLAMM_PURE_PYTHON=1 in the environment picks the twins. Whoever needs one of these functions
imports it from here; nothing may depend on which of the two it is. What a KeyMap holds, for one: ask its `capacity`.
"""

from __future__ import annotations

import os

from klamm.records.decoding import Columns, read_headers
from klamm.records.filter import SEED_BYTES, Filtered

__all__ = [
    "SEED_BYTES",
    "Builder",
    "Columns",
    "Filtered",
    "KeyMap",
    "Table",
    "add_keys",
    "decode_columns",
    "decode_consumed",
    "decode_fetched",
    "decode_payload",
    "encode_payload",
    "filter_records",
    "implementation",
    "keyless",
    "measure_fetched",
    "murmur2",
    "read_headers",
    "spread",
]

try:
    if os.environ.get("KLAMM_PURE_PYTHON", "") not in ("", "0"):
        raise ImportError("the pure twins are asked for")
    from klamm.records._native.kernel import (
        Builder,
        KeyMap,
        Table,
        add_keys,
        decode_columns,
        decode_consumed,
        decode_fetched,
        decode_payload,
        encode_payload,
        filter_records,
        keyless,
        measure_fetched,
        murmur2,
        spread,
    )
except ImportError:
    from klamm.records.building import Builder, murmur2, spread
    from klamm.records.columnar import Table
    from klamm.records.consuming import decode_consumed, decode_fetched, measure_fetched
    from klamm.records.decoding import decode_columns, decode_payload
    from klamm.records.encoding import encode_payload
    from klamm.records.filter import KeyMap, add_keys, filter_records, keyless

implementation = "pure Python" if KeyMap.__module__ == "klamm.records.filter" else "native"
"""Which of the two it is, for people to read."""
