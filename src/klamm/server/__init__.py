"""The network side of a broker: listeners, connections, dispatch to the APIs, and the limits that bound them all."""
