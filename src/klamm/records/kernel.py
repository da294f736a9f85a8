"""Decode, key filter and re-encode of records: the native functions where they could be built, else their pure twins.

Both do the same (the tests see to that), the native ones 20 to 100 times as fast and without holding the interpreter
in bulk calls. KLAMM_PURE_PYTHON=1 in the environment picks the twins. Whoever needs one of these functions imports it
from here; nothing else may depend on which of the two it is.
"""

from __future__ import annotations

from klamm.records.filter import SEED_BYTES, Filtered

__all__ = ["SEED_BYTES", "Filtered", "KeyMap", "add_keys", "filter_records", "implementation", "keyless"]

from klamm.records.filter import KeyMap, add_keys, filter_records, keyless

implementation = "pure Python"
"""What `klamm --version` may say of it."""
