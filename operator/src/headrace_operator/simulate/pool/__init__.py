"""`headrace simulate --pool`: what it would be worth if several services shared their GPUs."""
