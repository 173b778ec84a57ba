"""The plan of a pool, in words and numbers; what stands against one names the field to change."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_planning import TIME, asked, placed, question, service, window
from op_simulate_pool import QWEN

from headrace_operator.planning import answer as answering
from headrace_operator.planning.answer import make_answer
from headrace_operator.planning.question import Answer, Question, dump_json, load_json

CHAT, CODE = service("chat"), service("code")
MOST = 1_000  # requests


@pytest.fixture(autouse=True, scope="module")
def _small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answering, "MOST_REQUESTS", MOST)
        patch.setattr(answering, "WORK", 5_000)
        yield


def plan_of(*told, **fields):
    answer = make_answer(question(*told, **fields))
    assert answer.plan is not None, answer.message
    return answer.plan


def members(plan):
    return [(group.gpus, [member.service for member in group.members]) for group in plan.groups]


def test_services_with_little_to_do_share():
    answer = make_answer(question((CHAT, asked(met=3)), (CODE, asked(1, prompt=1000, output=10))))
    plan = answer.plan
    assert (answer.reason, plan.time, plan.gpus, plan.gpus_today) == ("PlanMade", TIME, 1, 2)
    assert answer.message == "1 GPUs, today 2: status.plan says who should share them"
    assert members(plan) == [(1, ["chat", "code"])]
    assert plan.groups[0].message == "chat and code by turns on 1 x H100"
    assert plan.message == (
        "1 x H100 are enough for what 2 do today: chat and code by turns on 1 x H100. An estimate, by what "
        "was asked in the busiest 40 s of the last hour"
    )
    assert sum(member.gpu_memory_utilization_percent for member in plan.groups[0].members) <= 94
    chat, code = plan.services
    assert (chat.name, chat.requests, chat.prompt_tokens, chat.output_tokens) == ("chat", 6, 500, 100)
    assert (chat.measured_percent, chat.today_percent, chat.planned_percent) == (100, 100, 100)
    assert (code.requests, code.prompt_tokens, code.measured_percent) == (2, 1000, 0)


def test_busy_services_keep_their_gpus():
    plan = plan_of((CHAT, asked(1000)), (CODE, asked(1000)))
    assert members(plan) == [(1, ["chat"]), (1, ["code"])]
    assert plan.message.startswith("2 x H100; today there are 2, and no fewer are enough: no service shares")


def test_where_nothing_is_enough_the_plan_says_for_whom():
    busy = service("chat", replicas=2)
    plan = plan_of((busy, asked(2000)), (CODE, asked(1)), gpus={"count": 1})
    assert plan.gpus_today == 3
    assert plan.message.startswith(
        "no plan does as well as today for chat, code; the best one takes 1 x H100"
    )


def test_groups_of_today_count_once():
    plan = plan_of((CHAT, asked()), (CODE, asked()), groups=[["chat", "code", "gone"]])
    assert (plan.gpus, plan.gpus_today) == (1, 1)
    assert plan.services[0].today_percent == 100


def test_engines_of_today_that_no_plan_could_have_are_not_estimated():
    wide = service("code", gpus=2)
    plan = plan_of((CHAT, asked()), (wide, asked()), groups=[["chat", "code"]])
    assert plan.gpus_today == 2
    assert plan.services[0].today_percent is None


def test_what_a_reader_should_know_is_in_the_message():
    without = service("chat")
    del without["spec"]["slo"]
    plan = plan_of(
        (without, asked()), (CODE, ()), (service("old"), ()), (service("own", "pvc://m"), asked()),
        silent=["old"], own="llama-3-8b",
    )  # fmt: skip
    assert "chat: targets are assumed, since spec.slo sets none: TTFT 1 s, TPOT 50 ms" in plan.message
    assert "Asked nothing: code." in plan.message
    assert "since no engine has told: old." in plan.message
    assert "own: times are those of llama-3-8b, for pvc://m" in plan.message
    assert plan.services[0].measured_percent is None
    assert plan.services[1].model_dump(exclude_defaults=True) == {"name": "code"}


def test_engines_of_one_service_are_alike():
    busy = service("chat", replicas=2)
    found = plan_of((busy, asked(700)), (CODE, asked(1)))
    assert len({(group.gpus, group.message) for group in found.groups if "chat" in group.message}) == 1


def test_a_service_that_does_badly_gets_the_gpus_that_there_are():
    plan = plan_of((CHAT, asked(1000, prompt=2000, output=500)), gpus={"count": 4})
    [chat] = plan.services
    assert plan.gpus > plan.gpus_today
    assert chat.today_percent < chat.planned_percent


def on_devices(name, device_class="gpu.nvidia.com"):
    body = service(name)
    if device_class:
        body["spec"]["accelerator"]["dra"] = {"deviceClassName": device_class}
    return body


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (on_devices("code", None), "LLMService code has no spec.accelerator.dra, which mode Auto needs"),
        (on_devices("code", "mig"), "spec.accelerator.dra of LLMService code is not that of chat"),
    ],
)
def test_services_that_cannot_be_moved_to_shared_devices_are_named(code, words):
    told = (on_devices("chat"), asked()), (code, asked())
    answer = make_answer(question(*told, mode="Auto"))
    assert (answer.reason, answer.plan) == ("MembersDiffer", None)
    assert words in answer.message
    assert make_answer(question(*told)).plan, "in mode Recommend nobody is moved"


def test_today_is_where_mode_auto_has_put_the_services():
    asking = question((on_devices("chat"), asked()), (on_devices("code"), asked()), mode="Auto")
    assert make_answer(asking).plan.gpus_today == 2
    for gpus in (2, 1):
        asking.pool["status"] = {"placement": placed("chat", "code", tensorParallelSize=gpus)}
        assert make_answer(asking).plan.gpus_today == gpus


def test_services_that_were_asked_nothing_have_no_plan():
    answer = make_answer(question((CHAT, ()), (CODE, ())))
    assert (answer.reason, answer.plan) == ("NoTraffic", None)


@pytest.mark.parametrize(
    ("body", "fields", "reason", "words"),
    [
        (
            service("own", "pvc://m"),
            {},
            "NotEstimable",
            "is known for pvc://m; name one of like size with spec.placement.services[own].costModel: ",
        ),
        (
            service("own", "pvc://m"),
            {"own": "lama"},
            "NotEstimable",
            "own: spec.placement.services[own].costModel: no cost model for lama; there are ",
        ),
        (
            CHAT,
            {"gpus": {"type": "TPU"}},
            "NotEstimable",
            "chat: spec.placement.gpus.type: no cost model for llama-3-8b on TPU; there are ",
        ),
        (service("chat", gpus=3), {}, "NotEstimable", "chat: spec.engine.tensorParallelSize: no cost model"),
        (
            service("chat", args=["--quantization=fp8"]),
            {},
            "NotEstimable",
            "with spec.placement.services[chat].costModel llama-3-8b it is simulated as if it were not there",
        ),
        (
            service("chat", "hf://meta-llama/Llama-3.1-70B", gpus=4),
            {"gpus": {"perNode": 1}},
            "NoRoom",
            "spec.placement.gpus: chat: fits no node",
        ),
    ],
)  # fmt: skip
def test_what_stands_against_a_plan_names_field_and_fix(body, fields, reason, words):
    answer = make_answer(question((body, asked()), **fields))
    assert (answer.reason, answer.plan) == (reason, None)
    assert words in answer.message
    assert "--model" not in answer.message


def test_services_that_find_no_room_together_are_told():
    told = [(service(name, QWEN, gpus=2), asked(1)) for name in ("a", "b", "c")]
    answer = make_answer(question(*told, gpus={"count": 1}))
    assert (answer.reason, answer.plan) == ("NoRoom", None)
    assert answer.message.startswith("spec.placement.gpus.count: no plan was found")


def test_a_service_that_is_not_valid_is_named():
    wrong = service("chat")
    wrong["spec"]["replicas"] = -1
    answer = make_answer(question((wrong, asked()), (CODE, asked())))
    assert answer.reason == "NotEstimable"
    assert answer.message.startswith("LLMService chat is not valid: spec.replicas")


counts = st.integers(0, 3 * MOST) | st.integers(0, 50_000)
any_windows = st.lists(
    st.builds(
        window,
        st.integers(0, 5),
        st.dictionaries(st.integers(0, 39), st.integers(1, 3), min_size=1, max_size=3),
        prompt=st.integers(0, 10**7),
        output=st.integers(0, 10**7),
    )
    | st.builds(lambda count: window(0, {3: count or 1}, prompt=5, output=5), counts),
    max_size=4,
    unique_by=lambda each: each.start,
).map(lambda found: tuple(sorted(found, key=lambda each: each.start)))


@settings(max_examples=10, deadline=None)
@given(any_windows, any_windows)
def test_whatever_engines_tell_there_is_an_answer_and_it_can_be_handed_on(chat, code):
    asked_for = question((CHAT, chat), (CODE, code))
    assert load_json(Question, dump_json(Question, asked_for)) == asked_for
    answer = make_answer(asked_for)
    assert (answer.plan is None) == (not chat and not code)
    assert load_json(Answer, dump_json(Answer, answer)) == answer
    assert make_answer(asked_for) == answer
