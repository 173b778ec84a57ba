"""What a neighbour in the cluster, or a thief of tokens, can do to other services."""
