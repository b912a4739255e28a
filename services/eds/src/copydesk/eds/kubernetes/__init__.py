"""Discovery from Kubernetes: a source that follows Services and EndpointSlices, and a lease for who publishes."""
