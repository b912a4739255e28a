"""A fleet's own authority, and the certificates that its parts show one another."""
