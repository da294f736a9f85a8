"""Members of classic groups, simulated, and the broker that dies under them."""
