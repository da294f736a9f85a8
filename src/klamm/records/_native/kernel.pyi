# The twins are what it does, so they are also its types.

from klamm.core.env import Buffer
from klamm.records.building import Builder as Builder
from klamm.records.building import murmur2 as murmur2
from klamm.records.building import spread as spread
from klamm.records.columnar import Table as Table
from klamm.records.consuming import decode_consumed as decode_consumed
from klamm.records.consuming import decode_fetched as decode_fetched
from klamm.records.consuming import measure_fetched as measure_fetched
from klamm.records.decoding import decode_columns as decode_columns
from klamm.records.decoding import decode_payload as decode_payload
from klamm.records.encoding import encode_payload as encode_payload
from klamm.records.filter import KeyMap as KeyMap
from klamm.records.filter import add_keys as add_keys
from klamm.records.filter import filter_records as filter_records
from klamm.records.filter import keyless as keyless

def fingerprint(seed: Buffer, data: Buffer) -> bytes: ...
