"""FP8 (E4M3) linear maps over torch: weights as they are stored, activations rounded to FP8 row by row.

`reference` states each kernel as a function in float32. `kernels` rounds rows by torch and `triton_kernels` by one
kernel each; `products` multiplies, by the hardware or emulated; `choice` finds out at load which of them run on a
device; `linear` has the maps that a decoder is built of. Nothing here waits for the device, looks at numbers on
the host, or needs more memory than its shapes say, so that a graph may capture all of it.
"""
