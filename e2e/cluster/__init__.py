"""A real single-node Kubernetes on one Linux machine, without Docker and without an image registry."""
