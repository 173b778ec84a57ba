"""Forms of texts that Kubernetes asks for: names, keys, labels, images, paths.

Each is checked twice by one pattern: by the API server, as a CEL rule of the CRD, and by parsing, for objects
that were stored under an older CRD. Patterns have no backslash, which CEL's texts would read as an escape.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

from annotated_types import GroupedMetadata
from pydantic import AfterValidator, WithJsonSchema

from headrace_operator.api.base import Integer, rule

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = f"{_LABEL}([.]{_LABEL})*"
_WORD = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
QUALIFIED = f"({SUBDOMAIN}/)?{_WORD}"
DOMAIN_QUALIFIED = f"{SUBDOMAIN}/{_WORD}"
_CONFIG_KEY = "[.]?[-_A-Za-z0-9][-._A-Za-z0-9]*"
_HOST = "[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?([.][A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*(:[0-9]+)?"
_PART = "[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*"
_IMAGE = f"({_HOST}/)?{_PART}(/{_PART})*(:[A-Za-z0-9_][-A-Za-z0-9_.]*)?(@[A-Za-z0-9+._-]+:[0-9a-fA-F]+)?"
_CLIMBING = "(^|/)[.][.](/|$)"
_WITHIN = "must be a path within the volume: neither absolute nor with .. in it"
_AMOUNT = "[0-9]+([.][0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?"

LONGEST_KEY = 253  # characters
QUANTITY_ADVICE = "must be a quantity such as 500m, 2 or 16Gi"
KEY_ADVICE = "must be NAME or DOMAIN/NAME, of letters, digits, `-`, `_` and `.`"


def matches(pattern: str, what: str = "self") -> str:
    """Write in CEL that the text is wholly of this form."""
    return f"{what}.matches('^{pattern}$')"


@dataclass(frozen=True, slots=True)
class Form(GroupedMetadata):
    """What a text must be: so long, and of this pattern as a whole (or free of it, where it is `wrong`)."""

    pattern: str
    advice: str  # what to write instead
    longest: int  # characters
    shortest: int = 1
    wrong: bool = False

    def __iter__(self) -> Iterator[object]:
        yield AfterValidator(self._check)
        cel = f"!self.matches('{self.pattern}')" if self.wrong else matches(self.pattern)
        yield WithJsonSchema(
            {
                "type": "string",
                "minLength": self.shortest,
                "maxLength": self.longest,
                "x-kubernetes-validations": [rule(cel, self.advice)],
            }
        )

    def _check(self, text: str) -> str:
        found = re.search(self.pattern, text) if self.wrong else re.fullmatch(self.pattern, text)
        if not self.shortest <= len(text) <= self.longest or bool(found) == self.wrong:
            raise ValueError(f"{text!r} {self.advice}")
        return text


ObjectName = Annotated[
    str, Form(SUBDOMAIN, "must be lower-case letters, digits, `-` and `.`, as a name of an object", 253)
]
CsiDriver = Annotated[str, Form(SUBDOMAIN, "must be the name of a CSI driver, such as csi.example.com", 63)]
TopologyKey = Annotated[str, Form(QUALIFIED, KEY_ADVICE, LONGEST_KEY)]
TaintKey = Annotated[str, Form(f"({QUALIFIED})?", KEY_ADVICE, LONGEST_KEY, 0)]
LabelValue = Annotated[
    str,
    Form(
        f"({_WORD})?",
        "must be letters, digits, `-`, `_` and `.`, and begin and end with a letter or digit",
        63,
        0,
    ),
]
ConfigKey = Annotated[
    str, Form(_CONFIG_KEY, "must be a key of a Secret or ConfigMap: letters, digits, `-`, `_` and `.`", 253)
]
DeviceResource = Annotated[
    str, Form(DOMAIN_QUALIFIED, "must be DOMAIN/NAME, such as nvidia.com/gpu, as device plugins do", 240)
]
Image = Annotated[str, Form(_IMAGE, "must be an image such as vllm/vllm-openai:v0.32.0", 512)]
_FIELDS = "metadata[.](name|namespace|uid)|spec[.](nodeName|serviceAccountName)|status[.](hostIPs?|podIPs?)"
# Bracket and quote are what is neither letter nor digit: a quote would end CEL's text.
_KEYED_FIELD = f"metadata[.](labels|annotations)[^a-zA-Z0-9]{{2}}{QUALIFIED}[^a-zA-Z0-9]{{2}}"
PodField = Annotated[
    str,
    Form(
        f"({_FIELDS}|{_KEYED_FIELD})",
        "must be a field that a pod can be told of itself, such as metadata.name or metadata.labels['KEY']",
        320,
    ),
]
# Paths within a volume, of a file in it, and of the node.
InnerPath = Annotated[str, Form(f"^/|{_CLIMBING}", _WITHIN, 512, 0, wrong=True)]
FilePath = Annotated[str, Form(f"^/|^[.][.]|{_CLIMBING}", _WITHIN, 256, wrong=True)]
NodePath = Annotated[str, Form(_CLIMBING, "must be a path without .. in it", 512, wrong=True)]


def _checked_quantity(quantity: str | int) -> str | int:
    if (isinstance(quantity, int) and quantity < 0) or not re.fullmatch(_AMOUNT, str(quantity)):
        raise ValueError(f"{quantity!r} {QUANTITY_ADVICE}")
    return quantity


Quantity = Annotated[
    str | Integer,
    AfterValidator(_checked_quantity),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "minimum": 0,
            "maxLength": 32,
            "pattern": f"^{_AMOUNT}$",
        }
    ),
]


def keys_rule(spelling: str = "k") -> dict[str, str]:
    """Make the CEL rule for a map whose keys are as labels'; `spelling` is what is checked of a key `k`."""
    plain = f"k.size() <= {LONGEST_KEY} && {matches(QUALIFIED, spelling)}"
    return rule(f"self.all(k, {plain})", f"each key {KEY_ADVICE}")


def check_keys(keys: Iterable[str]) -> None:
    """Check the keys as `keys_rule` does, for parsing; raises ValueError."""
    for key in keys:
        if len(key) > LONGEST_KEY or not re.fullmatch(QUALIFIED, key):
            raise ValueError(f"{key!r}: each key {KEY_ADVICE}")
