import pytest


@pytest.fixture(scope="module")
def quiet_vllm():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_LOGGING_LEVEL", "ERROR")
        yield
