"""The work queue on a virtual clock: coalescing, exclusion, backoff."""

import asyncio

import pytest

from headrace_operator.run.workqueue import WorkQueue


class Clock:
    """Seconds that pass when told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def queue(clock):
    return WorkQueue(clock, jitter=lambda: 1.0)


async def next_key(queue):
    """The next key if one is ready at this moment, else None."""
    task = asyncio.create_task(queue.next_key())
    for _ in range(3):
        await asyncio.sleep(0)
    if task.done():
        return task.result()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return None


async def test_a_key_added_often_is_worked_on_once(queue):
    for _ in range(3):
        queue.add("a")
    assert queue.depth == 1
    assert await next_key(queue) == "a"
    assert await next_key(queue) is None


async def test_a_key_is_never_worked_on_twice_at_a_time_and_changes_are_not_lost(queue):
    queue.add("a")
    await next_key(queue)
    queue.add("a")
    assert await next_key(queue) is None
    queue.add("b")
    assert await next_key(queue) == "b"
    queue.finish_key("a")
    assert await next_key(queue) == "a"


async def test_the_earlier_of_two_times_counts(queue, clock):
    queue.add("a", delay=30.0)
    queue.add("a", delay=5.0)
    queue.add("a", delay=60.0)
    clock.now = 4.9
    assert await next_key(queue) is None
    clock.now = 5.0
    assert await next_key(queue) == "a"
    queue.finish_key("a")
    clock.now = 100.0
    assert await next_key(queue) is None


async def test_retries_double_up_to_a_minute_and_start_over_after_success(queue, clock):
    waits = []
    queue.add("a")
    for _ in range(8):
        assert await next_key(queue) == "a"
        queue.retry_key("a")
        begin = clock.now
        while await next_key_is_none(queue, clock):
            clock.now += 0.5
        waits.append(clock.now - begin)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert await next_key(queue) == "a"
    queue.finish_key("a")
    queue.add("a")
    await next_key(queue)
    queue.retry_key("a")
    clock.now += 1.0
    assert await next_key(queue) == "a"


async def next_key_is_none(queue, clock):
    return queue.depth == 0


async def test_age_is_that_of_the_key_due_longest(queue, clock):
    assert queue.age == 0.0
    queue.add("a")
    queue.add("later", delay=100.0)
    clock.now = 7.0
    queue.add("b")
    assert queue.age == 7.0


async def test_waiting_workers_wake_for_new_keys():
    queue = WorkQueue()
    waiting = [asyncio.create_task(queue.next_key()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add("a")
    queue.add("b", delay=0.01)
    assert set(await asyncio.gather(*waiting)) == {"a", "b"}


async def test_a_worker_that_is_cancelled_as_it_wakes_ends():
    """`asyncio.wait_for` of Python 3.11 takes one for the other, and a stop then waits for ever."""
    queue = WorkQueue()
    queue.add("later", delay=60.0)
    waiting = [asyncio.create_task(queue.next_key()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add("a")
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    done, pending = await asyncio.wait(waiting, timeout=5)
    assert len(done) == 2
    assert not pending


async def test_a_retry_waits_as_long_as_it_is_told_to(queue, clock):
    queue.add("a")
    await next_key(queue)
    queue.retry_key("a", at_least=30.0)
    clock.now += 29.9
    assert queue.depth == 0
    clock.now += 0.1
    assert await next_key(queue) == "a"
