"""The consumer protocol of KIP-848: the coordinator assigns, and each member moves to its new partitions by itself."""
