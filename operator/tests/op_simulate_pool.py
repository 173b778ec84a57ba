"""Services and traces for tests of `headrace simulate --pool`."""

from op_world import body

from headrace_operator.api import parse_service
from headrace_operator.simulate.pool.pool_service import read_service

HEADER = "arrival_time,prompt_tokens,output_tokens\n"
LLAMA = "hf://meta-llama/Llama-3.1-8B-Instruct"
QWEN = "hf://Qwen/Qwen3-32B"


def raw(name, source=LLAMA, gpus=1, replicas=1, **engine):
    """An LLMService as a user writes it."""
    made = body(
        model={"source": source},
        engine={"image": "i", "maxModelLen": 8192, "tensorParallelSize": gpus, **engine},
        replicas=replicas,
        slo={"ttft": "1s", "tpot": "50ms"},
    )
    made["metadata"] = {"name": name}
    return made


def read(name, source=LLAMA, gpus=1, replicas=1, **engine):
    """The same as it is simulated."""
    made = raw(name, source, gpus, replicas, **engine)
    made["metadata"] |= {"namespace": "llm", "uid": name}
    return read_service(parse_service(made), None, "h100")


def write_trace(folder, name, times, prompt=200, output=50):
    """Write a trace; returns its path."""
    path = folder / f"{name}.csv"
    path.write_text(HEADER + "".join(f"{at},{prompt},{output}\n" for at in times))
    return path
