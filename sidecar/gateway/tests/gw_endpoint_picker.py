"""Runs the real endpoint picker of `llm/chat` on a catalog file:

python gw_endpoint_picker.py FILE GRPC_PORT HTTP_PORT
"""

import logging
import sys
from pathlib import Path

import uvloop
from gw_picker import file_source

from headrace_gateway.endpoint_picker import serve
from headrace_gateway.settings import Settings

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    grpc_port, http_port = map(int, sys.argv[2:])
    settings = Settings(
        address="127.0.0.1",
        pod_namespace="llm",
        service="chat",
        ads_port=grpc_port,
        http_port=http_port,
    )
    uvloop.run(serve(settings, file_source(Path(sys.argv[1]))))
