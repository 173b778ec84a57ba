"""The key with which the gateway signs what engines shall resume: made once, in a Secret beside the gateway.

The gateway reads the Secret; engines get the public half by the ConfigMap of their service. So nothing secret
leaves the system namespace, and nothing is restarted for another key: delete the Secret, and one is made.
"""

from __future__ import annotations

import base64
import logging
from dataclasses import dataclass, field

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from headrace_engine.contracts.resume_arguments import EXPONENT, LEAST_BITS
from headrace_operator import names
from headrace_operator.api.bodies import Body, JsonObject
from headrace_operator.errors import ApiError
from headrace_operator.kube.client import Cluster
from headrace_operator.kube.kinds import SECRET

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class GatewayKey:
    """The key in Secret `name` of `namespace`, as it was last read."""

    namespace: str
    name: str
    modulus: str = field(default="", init=False)
    """Of the public key, in hexadecimal digits; empty where there is none: then nothing is resumed."""
    _problem: str = field(default="", init=False)

    async def refresh(self, cluster: Cluster) -> bool:
        """Read the key, or make it; whether it is another than before.

        Raises ApiError if the API server is in trouble. What else is wrong is logged once; nothing changes.
        """
        try:
            found = await self._read_or_make(cluster)
            modulus = _modulus(found)
        except ApiError as error:
            if not error.is_about_object:
                raise
            self._log_once(str(error))
            return False
        except ValueError as error:
            self._log_once(f"{error}: delete the Secret, and the operator makes another")
            return False
        self._problem = ""
        changed, self.modulus = modulus != self.modulus, modulus
        return changed

    async def _read_or_make(self, cluster: Cluster) -> JsonObject:
        found = await cluster.read(SECRET.kind, self.namespace, self.name)
        if found is not None:
            return found
        logger.info("making the gateway's key, Secret %s/%s", self.namespace, self.name)
        return await cluster.create(_secret(self.namespace, self.name))

    def _log_once(self, problem: str) -> None:
        if problem != self._problem:
            logger.warning("the gateway's key, Secret %s/%s: %s", self.namespace, self.name, problem)
        self._problem = problem


def _secret(namespace: str, name: str) -> JsonObject:
    private = rsa.generate_private_key(EXPONENT, LEAST_BITS).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "apiVersion": SECRET.api_version,
        "kind": SECRET.kind,
        "metadata": {"namespace": namespace, "name": name, "labels": {names.MANAGED_BY: names.MANAGER}},
        "type": "Opaque",
        "data": {names.PRIVATE_KEY_FILE: base64.b64encode(private).decode()},
    }


def _modulus(secret: Body) -> str:
    """Return the public modulus of a Secret's key; raises ValueError if it has none that engines take."""
    text = (secret.get("data") or {}).get(names.PRIVATE_KEY_FILE)
    if text is None:
        raise ValueError(f"has no {names.PRIVATE_KEY_FILE}")
    try:
        key = serialization.load_pem_private_key(base64.b64decode(text), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it asks for a password
        key = None
    if not isinstance(key, rsa.RSAPrivateKey) or key.key_size < LEAST_BITS:
        raise ValueError(f"{names.PRIVATE_KEY_FILE} is no RSA key of {LEAST_BITS} bits or more in PEM")
    public = key.public_key().public_numbers()
    if public.e != EXPONENT:
        raise ValueError(f"{names.PRIVATE_KEY_FILE}: the public exponent is {public.e}, not {EXPONENT}")
    return format(public.n, "x")
