"""One partition on disk: segments, indexes, epochs, producer state, recovery, retention."""
