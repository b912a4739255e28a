"""The endpoints of every model over xDS, so that Envoy and gRPC clients follow the same truth as the gateways.

Decisions (`subscription`, `assignment`, `slow_start`) are pure; `catalogue` keeps what is served, encoded once a
version; `stream` and `server` are the gRPC around them.
"""

import os

# What gRPC's core has to say of each lost connection would stand between our lines, in another form.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
