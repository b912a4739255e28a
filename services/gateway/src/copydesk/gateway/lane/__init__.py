"""The express lane: the hot path of a request in a compiled extension module, built where it is to run."""
