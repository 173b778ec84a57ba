"""Changes that come while a pass is under way."""

from functools import partial

import kopf
from op_memory import operator, update, with_service

from headrace_operator.api import Key
from headrace_operator.kube import handlers
from headrace_operator.run.workqueue import WorkQueue

KEY = Key("llm", "chat")


async def follow_its_events(memory, running):
    """Reconcile whenever an event of the service asks for it, until none is left; all others are lost."""
    registry, queue = kopf.OperatorRegistry(), WorkQueue(lambda: 0.0)
    handlers.register_watches(registry, running.cache, queue.add)
    event = next(h.fn for h in registry._watching.get_all_handlers() if h.id == "on-llmservices")
    while memory.events:
        item = memory.events.pop(0)
        if item["kind"] == "LLMService":
            await event(event={"type": "MODIFIED"}, body=item)
        if queue.depth:
            queue.finish_key(await queue.next_key())
            await running.reconcile(KEY)


async def test_a_change_at_any_moment_of_a_pass_is_carried_out():
    """Although the answer to the pass's own write of the status shows it already, before its event comes."""
    undisturbed = with_service()
    await operator(undisturbed).reconcile(KEY)
    for call in range(1, undisturbed.calls + 1):
        memory = with_service()
        memory.meanwhile[call] = partial(update, memory, replicas=5)
        running = operator(memory)
        await running.reconcile(KEY)
        await follow_its_events(memory, running)
        assert memory.objects["Deployment", "chat"]["spec"]["replicas"] == 5, f"after call {call}"
