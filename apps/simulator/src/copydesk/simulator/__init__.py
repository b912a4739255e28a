"""A fleet in virtual time, under the decisions of the autoscaler and of others."""
