"""A fleet in virtual time: what a rule of balancing does with it."""
