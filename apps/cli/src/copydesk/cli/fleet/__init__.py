"""A fleet on one machine: what it consists of, when to restart what, and in which order to stop it."""
