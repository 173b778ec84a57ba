"""Every part of the local cluster killed at random moments under load."""
