"""The real gateway on loopback, before stand-ins for engines: what it costs, and how long requests wait."""
