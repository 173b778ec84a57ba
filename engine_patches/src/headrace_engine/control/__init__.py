"""The files through which sidecar and engine talk, in a memory-backed folder that only the two can see."""
