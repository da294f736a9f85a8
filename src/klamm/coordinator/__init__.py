"""Groups and transactions: state machines that decide, records that keep what they decided, and the shards that run
them on the partitions of `__consumer_offsets` and `__transaction_state`."""
