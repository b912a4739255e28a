"""A client of registries: https://github.com/opencontainers/distribution-spec, version 1.1.

`repository.Repository` is the door. Registries are not trusted: every answer is bounded in size, every blob
and manifest is checked against its digest, and credentials go to nobody but their registry and who it names for
tokens.
"""
