"""EROFS metadata, written and read without the kernel.

https://docs.kernel.org/filesystems/erofs.html and `fs/erofs/erofs_fs.h` of Linux describe the format. Only the
part that an image needs is here: extended inodes, inline extended attributes, and regular files whose chunks lie
on a second device. Unlike mkfs.erofs, the same tree always gives the same bytes, and a file's blocks may lie in
any order.
"""
