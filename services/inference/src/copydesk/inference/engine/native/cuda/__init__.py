"""The GPU path: steps padded to prepared sizes, replayed as CUDA graphs, with tokens that stay on the device.

`buckets` (which sizes), `padded_layout` (a step in its bucket, as numbers; C++ with a reference in Python),
`padded_step` (its tensors), `backend` (a stream with graphs, or a processor that does the same), `bucket_device`
(the device). Only what serves with torch imports it.
"""
