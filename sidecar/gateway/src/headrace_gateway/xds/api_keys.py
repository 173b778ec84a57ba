"""Gives Envoy the API keys in a mounted Secret: `python3 -m headrace_gateway.xds.api_keys SECRET FILE`.

Each entry of the Secret is a client, each line of it a key of that client, so that an old and a new key can
be valid side by side. FILE is Envoy's, replaced whole whenever the Secret changes; nothing else is written,
and no key is ever logged. With this process gone, the keys that were valid stay valid.
"""

import argparse
import json
import logging
import signal
import sys
import time
from pathlib import Path

from headrace_gateway.xds.credentials import api_keys_document

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0  # the kubelet itself takes up to a minute


def main() -> None:
    """Follow the Secret until SIGTERM."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("secret", type=Path)
    parser.add_argument("file", type=Path)
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    written = ""
    while True:
        written = update_file(chosen.secret, chosen.file, written)
        time.sleep(POLL_SECONDS)


def update_file(secret: Path, file: Path, written: str) -> str:
    """Write `file` if the Secret's keys are not those that were `written`; returns what is written now."""
    try:
        entries = read_entries(secret)
    except OSError as error:  # replaced while it was read
        log.warning("the Secret could not be read: %s", error)
        return written
    text = json.dumps(api_keys_document(pair_keys(entries)))
    if text != written:
        new = file.with_name(f"{file.name}.new")
        new.write_text(text)
        new.rename(file)
        log.info("keys of %d clients", len(entries))
    return text


def read_entries(secret: Path) -> dict[str, str]:
    """Read the Secret's entries, by name."""
    return {
        each.name: each.read_text(errors="replace")
        for each in sorted(secret.iterdir())
        if not each.name.startswith("..") and each.is_file()
    }


def pair_keys(entries: dict[str, str]) -> list[tuple[str, str]]:
    """Pair each key with its client; what cannot be a key is left out, with a line in the log."""
    owners: dict[str, str] = {}
    for client, text in entries.items():
        keys = [line.strip() for line in text.splitlines() if line.strip()]
        if not keys:
            log.warning("client %s has no key", client)
        for key in keys:
            if not (key.isascii() and key.isprintable()) or " " in key:
                log.error(
                    "client %s: a key may have no spaces and only printable ASCII; it is left out", client
                )
            elif owners.setdefault(key, client) != client:
                log.error("client %s has the same key as %s; it stays that one's", client, owners[key])
    return list(owners.items())


if __name__ == "__main__":
    main()
