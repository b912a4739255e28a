"""From an image's layers to a tree and a device: untar, flatten, order, compress.

Layers come from anywhere, so nothing in them is trusted: a name or link cannot lead out of the tree, numbers are
checked before they are used, and memory holds names and places only, contents go through a temporary file.
"""
