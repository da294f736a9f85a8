"""Record batches (Kafka's message format v2): headers, records, varints, compression.

`batch` is all that the broker's hot path needs; `record` and `compression` look inside a batch and are imported only by
what has to. What walks over records one by one is in `kernel`: native where it could be compiled, else the pure twins
in `filter`, `decoding` and `encoding`. Nothing here does I/O.
"""
