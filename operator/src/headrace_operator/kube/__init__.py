"""The API server: the client, the cache that watches fill, the Lease and Events. Decides nothing."""
