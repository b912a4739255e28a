"""How the adapter was made: from public texts to pairs, from pairs to an adapter, and its scores."""
