"""How the operator's process ends."""

import subprocess
import sys

DEAF = """
import asyncio
from headrace_operator import __main__ as operator

operator._ENDING = 0.2

async def deaf():
    while True:
        try:
            await asyncio.sleep(60.0)
        except asyncio.CancelledError:
            pass

async def end():
    await operator._end(asyncio.create_task(asyncio.sleep(60.0)), [asyncio.create_task(deaf())])

asyncio.run(end())
"""


def test_a_part_that_does_not_end_does_not_hold_the_process():
    ended = subprocess.run(
        [sys.executable, "-c", DEAF], check=False, capture_output=True, text=True, timeout=30
    )
    assert ended.returncode == 1
    assert "cut off" in ended.stderr
