"""Who may come in, and under which certificate: both from files that Kubernetes keeps current.

The certificate is a mounted Secret that Envoy watches itself. API keys are a mounted Secret too, one client
an entry, which `keys` writes as the filter's configuration for Envoy to watch. Neither goes over the network,
and a change of either leaves connections and streams alone.
"""

from collections.abc import Iterable
from typing import Any

from headrace_gateway.headers import CLIENT_HEADER
from headrace_gateway.xds.filters import typed_config

API_KEYS = "api-keys"  # the filter, as Envoy and its configuration file both call it
CERTIFICATE = "gateway"
_API_KEY_AUTH = "envoy.extensions.filters.http.api_key_auth.v3.ApiKeyAuth"


def api_key_filter(file: str) -> dict[str, Any]:
    """Make the filter that lets in who bears a key of `file`, an `api_keys_document`; others get a 401."""
    folder = file.rpartition("/")[0]
    return {
        "name": API_KEYS,
        "config_discovery": {
            "config_source": {
                "resource_api_version": "V3",
                "path_config_source": {"path": file, "watched_directory": {"path": folder}},
            },
            "type_urls": [f"type.googleapis.com/{_API_KEY_AUTH}"],
        },
    }


def api_keys_document(credentials: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Make the filter's configuration: pairs of key and client; no key twice, or Envoy refuses it.

    Engines and the access log learn the client's name; the key ends at the gateway.
    """
    auth = typed_config(
        API_KEYS,
        _API_KEY_AUTH,
        credentials=[{"key": key, "client": client} for key, client in credentials],
        # As it is, or after `Bearer `; the second is what Anthropic's clients send.
        key_sources=[{"header": "Authorization"}, {"header": "x-api-key"}],
        forwarding={"header": CLIENT_HEADER, "hide_credentials": True},
    )
    return {"resources": [{"@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig", **auth}]}


def tls_socket(file: str) -> dict[str, Any]:
    """Make the socket for TLS towards clients, under the certificate in `file`, a `certificate_document`."""
    source = {"resource_api_version": "V3", "path_config_source": {"path": file}}
    return typed_config(
        "envoy.transport_sockets.tls",
        "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        common_tls_context={
            "alpn_protocols": ["h2", "http/1.1"],
            "tls_params": {"tls_minimum_protocol_version": "TLSv1_2"},
            "tls_certificate_sds_secret_configs": [{"name": CERTIFICATE, "sds_config": source}],
        },
    )


def certificate_document(folder: str) -> dict[str, Any]:
    """Make the secret for the certificate in `folder`, a mounted TLS Secret, read again when it changes."""
    return {
        "resources": [
            {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
                "name": CERTIFICATE,
                "tls_certificate": {
                    "certificate_chain": {"filename": f"{folder}/tls.crt"},
                    "private_key": {"filename": f"{folder}/tls.key"},
                    "watched_directory": {"path": folder},
                },
            }
        ]
    }
