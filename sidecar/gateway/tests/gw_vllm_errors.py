"""Runs vLLM's own API server without an engine behind it: `python gw_vllm_errors.py ADDRESS PORT`.

Requests that it refuses before it needs an engine get what they get from any vLLM; others an error 500.
"""

import sys

import uvicorn
from vllm.entrypoints.launchers.app import build_app
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

if __name__ == "__main__":
    address, port = sys.argv[1:]
    arguments = make_arg_parser(FlexibleArgumentParser()).parse_args(["--model", "none"])
    app = build_app(arguments, supported_tasks=("generate",))
    uvicorn.run(app, host=address, port=int(port), lifespan="off", log_level="warning")
