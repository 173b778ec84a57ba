"""A body that takes long to read becomes a prompt, or what the client is told instead."""

from headrace_gateway.pick.picker import invalid_body
from headrace_gateway.pick.prompt_reader import PromptReader, ReaderBusyError
from headrace_gateway.pick.tokens import BadRequestError, Prompt
from headrace_gateway.replies import Reply

MOST_BYTES = 64 << 20  # of bodies held at once; the picker's memory has room for a few times that
BUSY = Reply(429, "overloaded", "the gateway reads other long requests of this service first", retry_after=1)


async def read_elsewhere(reader: PromptReader, service: str, body: bytes) -> Prompt | Reply:
    """Have the reader's process read the body of a request to `service`."""
    try:
        return await reader.read(service, body)
    except BadRequestError as error:
        return invalid_body(error)
    except ReaderBusyError:
        return BUSY
