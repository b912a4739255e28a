"""The virtual block device of each image: a file in a FUSE file system of our own, and EROFS mounted on it."""
