"""The group of engines that share a GPU with this one, and take turns on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

LEAST_TOKEN_BYTES = 16
TurnOrder = Literal["FairShare", "DoublingBudget"]


@dataclass(frozen=True, slots=True)
class TurnGroup:
    """Operator → engine: where the group's turn server is, and what proves to it that the engine is a member.

    `host` is an IP address, so that no engine waits for a name server; `token` is in hexadecimal digits;
    `order` says whose turn comes next. Raises ValueError for a port or a token that can't be one.
    """

    host: str
    port: int
    token: str = field(repr=False)
    order: TurnOrder = "FairShare"
    schema: int = 1

    def __post_init__(self) -> None:
        """Refuse what no server can have."""
        if not 0 < self.port < 1 << 16:
            raise ValueError(f"port: {self.port} is none")
        if len(self.secret) < LEAST_TOKEN_BYTES:
            raise ValueError(f"token: has fewer than {LEAST_TOKEN_BYTES} bytes")

    @property
    def secret(self) -> bytes:
        """The token's bytes."""
        try:
            return bytes.fromhex(self.token)
        except ValueError:
            raise ValueError("token: is not in hexadecimal digits") from None
