"""Container images that start before they are there.

An image is converted once: its layers become EROFS metadata, which a node fetches whole, and a data device cut
into sectors, of which a node fetches those that are read. `index` is the contract between who converts
(`registry`, `convert`, `erofs`) and who serves.
"""
