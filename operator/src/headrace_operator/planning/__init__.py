"""Makes the plan that a GPUPool asks for: in a process of its own, since it computes for minutes."""
