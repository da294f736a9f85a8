"""Consumer groups of both protocols in the simulated world, and what their members may rely on."""
