"""An operator on a real API server, with stand-ins for controllers, nodes and sidecars."""
