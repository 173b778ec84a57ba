"""Long outages of the API server, and quarrels with another writer of the same objects."""
