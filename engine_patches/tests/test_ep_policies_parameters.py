"""Every kind of parameter through its three readings: schema, values, refusals."""

from dataclasses import dataclass, field

import pytest

from headrace_engine.contracts import ContractError
from headrace_engine.policies import parameters
from headrace_engine.policies.parameters import choice, doc, flag


@dataclass(frozen=True)
class Params:
    how_many: int = field(default=3, metadata=doc("A number.", unit="blocks", minimum=1, maximum=9))
    variant: str = field(default="Full", metadata=choice("A name.", "Full", "Half"))
    strict: bool = field(default=True, metadata=flag("A switch."))


def test_the_schema_of_each_kind():
    assert parameters.schema(Params)["properties"] == {
        "howMany": {
            "type": "integer",
            "description": "A number. In blocks.",
            "minimum": 1,
            "maximum": 9,
            "default": 3,
        },
        "variant": {"type": "string", "description": "A name.", "enum": ["Full", "Half"], "default": "Full"},
        "strict": {"type": "boolean", "description": "A switch.", "default": True},
    }


def test_values_of_each_kind():
    assert parameters.parse(Params, {}, "x") == Params()
    given = {"howMany": 9, "variant": "Half", "strict": False}
    assert parameters.parse(Params, given, "x") == Params(9, "Half", False)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"strict": 1}, r"x\.strict: expected true or false, got 1"),
        ({"variant": "Quarter"}, r"x\.variant: 'Quarter' is not one of Full, Half"),
        ({"variant": ["Full"]}, r"x\.variant: \['Full'\] is not one of Full, Half"),
        ({"howMany": True}, r"x\.howMany: expected an integer, got True"),
        ({"howMany": 10}, r"x\.howMany: 10 is outside 1 to 9"),
    ],
)
def test_refusals_name_the_key(values, message):
    with pytest.raises(ContractError, match=message):
        parameters.parse(Params, values, "x")
