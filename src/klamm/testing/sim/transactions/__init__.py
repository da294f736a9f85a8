"""Transactional clients in the simulated world, and the life and deaths of the broker that they use."""
