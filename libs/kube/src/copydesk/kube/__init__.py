"""Kubernetes for the services of the control plane: a client of the API server, and a Lease for who leads."""
