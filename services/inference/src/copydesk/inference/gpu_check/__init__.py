"""What a machine with a GPU is asked: whether the GPU path answers rightly there, and how fast it is.

`scripts/gpu_check.sh` runs it. `parts` says what there is to do and within what time; each part runs in a process
of its own (`running`), since an error on a GPU breaks the process that it happens in, and hands over `rows`. Of
these come the `verdict` and the `table`.
"""
