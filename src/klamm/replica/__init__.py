"""The replicas this broker holds: what it may serve, up to which offset, and who waits for more.

Between the log (bytes on disk) and the APIs (the wire). Knows leadership, epochs and the high watermark; knows
nothing of requests, versions or connections.
"""
