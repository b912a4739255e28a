"""Scaling in Kubernetes: the scale subresource of Deployments and StatefulSets, and a Lease for who decides."""
