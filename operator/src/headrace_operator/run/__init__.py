"""The loop: settings in hand, it reads, asks `decide`, writes through `kube`, and serves probes."""
