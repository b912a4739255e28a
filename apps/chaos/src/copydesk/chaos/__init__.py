"""A fleet under load while faults strike it: a plan drawn from a seed, and a verdict on what came of it."""
