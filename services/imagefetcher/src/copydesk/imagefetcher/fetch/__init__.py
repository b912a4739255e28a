"""Getting sectors: what is fetched next, from whom, and once for all who ask."""
