"""A remote snapshotter of containerd: it answers a pull with a lazily loaded image where there is one.

https://github.com/containerd/containerd/blob/main/docs/remote-snapshotter.md describes the contract. An image of
ours is flattened: the snapshot of its last layer is the whole image, those of the layers below it are empty, and
are there so that containerd does not download them.
"""
