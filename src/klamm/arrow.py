"""Fetched records as `pyarrow.RecordBatch`es; see `klamm.client.arrow`, and `Consumer.arrow`. Needs `klamm[arrow]`."""

from klamm.client.arrow import MAX_BYTES, MAX_ROWS, NoArrow, batches, schema

__all__ = ["MAX_BYTES", "MAX_ROWS", "NoArrow", "batches", "schema"]
