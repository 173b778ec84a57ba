"""Plans for a pool: today's engines, better ones for the same GPUs, and the fewest GPUs that do as well."""

import dataclasses

import pytest
from op_kube import gpupool
from op_simulate_pool import QWEN, read

from headrace_engine.cost import catalog
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_operator.api import parse_pool
from headrace_operator.placement.problem import Nodes, divide_gpus
from headrace_operator.placement.score import FitsNowhereError
from headrace_operator.simulate.figures import Figures, Spread
from headrace_operator.simulate.pool.pool_study import list_todays, run_study
from headrace_operator.simulate.pool.pool_traces import PoolStretch
from headrace_operator.simulate.simulated_engine import RESERVED, UTILIZATION
from headrace_operator.simulate.usage_error import UsageError

USABLE = int(catalog.gpu_bytes("h100") * UTILIZATION)
SECOND = Spread(1.0, 1.0, 1.0, 1.0)


def asked(rate, count=60):
    return tuple(Arrival(number / rate, 300, 60) for number in range(count))


def stretch(*arrivals):
    requests = sum(map(len, arrivals))
    return PoolStretch(arrivals, 0.0, 60.0, requests, 60.0, ())


class Simulated:
    """Stands in for the simulator: `met` says what share of the targets is met on so many GPUs."""

    def __init__(self, met=lambda gpus: 1.0):
        self.met = met
        self.jobs = []

    def __call__(self, jobs, what):
        self.jobs += jobs
        return [self.figures(job) for job in jobs]

    def figures(self, job):
        share = self.met(sum(group.engines[0].cost.profile.tensor_parallel for group in job.groups))
        return [
            Figures(len(each.arrivals), 0, SECOND, SECOND, SECOND, 0.1, 0, {"all": share})
            if each.arrivals
            else None
            for each in job.services
        ]


def study(services, arrivals, gpus, simulated, per_node=8):
    nodes = Nodes(divide_gpus(gpus, per_node), USABLE, RESERVED)
    return run_study(simulated, services, list_todays(services, []), stretch(*arrivals), nodes, seed=0)


def test_services_that_are_seldom_asked_need_one_gpu_if_they_share_it():
    simulated = Simulated()
    found = study([read("chat"), read("code")], [asked(0.1), asked(0.1)], 2, simulated)
    assert (found.today.gpus, found.today.shares) == (2, False)
    assert (found.fewest_shared.gpus, found.fewest_shared.shares) == (1, True)
    assert found.fewest_alone is None
    [group] = simulated.jobs[-1].groups
    assert [engine.seat.service for engine in group.engines] == [0, 1]


def test_the_simulation_decides_how_few_gpus_are_enough():
    services, arrivals = [read(name) for name in "abcd"], [asked(0.1)] * 4
    assert study(services, arrivals, 4, Simulated()).fewest_shared.gpus == 2
    at_three = study(services, arrivals, 4, Simulated(lambda gpus: 1.0 if gpus > 2 else 0.5))
    assert at_three.fewest_shared.gpus == 3
    assert study(services, arrivals, 4, Simulated(lambda gpus: gpus > 3)).fewest_shared is None


def test_as_well_as_today_is_enough_where_today_is_not_well():
    services, arrivals = [read("chat"), read("code")], [asked(0.1), asked(0.1)]
    found = study(services, arrivals, 2, Simulated(lambda gpus: 0.4 if gpus > 1 else 0.395))
    assert found.fewest_shared.gpus == 1


def test_who_is_asked_nothing_is_placed_too():
    found = study([read("chat"), read("idle")], [asked(1.0), ()], 2, Simulated())
    assert found.today.figures[1] is None
    assert found.fewest_shared.gpus == 1
    assert {engine.service for group in found.fewest_shared.groups for engine in group.engines} == {0, 1}


def test_a_plan_that_has_no_room_for_all_is_none():
    services = [read(name, QWEN) for name in "abc"]
    found = study(services, [asked(0.1)] * 3, 1, Simulated())
    assert (found.alone, found.shared, found.fewest_alone, found.fewest_shared) == (None,) * 4
    assert found.today.gpus == 3


def test_a_service_that_fits_no_node_is_named():
    services = [read("large", "hf://meta-llama/Llama-3.1-70B-Instruct", gpus=4)]
    with pytest.raises(FitsNowhereError, match="large"):
        study(services, [asked(0.1)], 2, Simulated(), per_node=1)


def test_replicas_have_equal_parts_of_the_requests():
    simulated = Simulated()
    study([read("chat", replicas=3)], [asked(1.0)], 3, simulated)
    seats = [engine.seat for group in simulated.jobs[0].groups for engine in group.engines]
    assert seats == [(0, 0, 3), (0, 1, 3), (0, 2, 3)]


def pool(**groups):
    made = gpupool("shared", **groups)
    made["metadata"] |= {"namespace": "llm", "uid": "shared"}
    return parse_pool(made)


def test_groups_of_a_pool_share_today():
    services = [read("chat"), read("code"), read("other", gpus=2)]
    found = list_todays(services, [pool(pair=["chat", "code"])])
    assert [(each.gpus, [engine.service for engine in each.engines]) for each in found] == [
        (1, [0, 1]),
        (2, [2]),
    ]
    assert found[0].order == "FairShare"


@pytest.mark.parametrize(
    ("members", "words"),
    [
        (["chat", "none"], "group pair: no LLMService none in the file"),
        (["chat", "other"], "group pair: its members have tensorParallelSize 1, 2"),
    ],
)
def test_a_group_that_cannot_be_simulated_is_named(members, words):
    services = [read("chat"), read("other", gpus=2)]
    with pytest.raises(UsageError) as caught:
        list_todays(services, [pool(pair=members)])
    assert words in str(caught.value)


def test_each_engine_has_the_kv_of_its_plan():
    simulated = Simulated()
    service = read("chat", gpuMemoryUtilizationPercent=50)
    study([service, read("code")], [asked(0.1)] * 2, 2, simulated)
    todays = simulated.jobs[0].groups[0].engines[0].settings
    assert todays == service.engine.settings
    shared = simulated.jobs[-1].groups[0].engines[0].settings
    assert shared == dataclasses.replace(todays, num_blocks=shared.num_blocks)
    assert shared.num_blocks * shared.block_size >= service.longest
