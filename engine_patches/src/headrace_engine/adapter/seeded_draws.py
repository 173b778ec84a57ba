"""Puts a seeded request's generator where it would be after tokens that another engine has sampled.

vLLM's first model runner keeps a generator for each seeded request; each token that it samples is one draw,
whose size and kind depend on the version and the device. So the sampler itself is asked for the draws that
were made elsewhere, right before the request's first: on GPUs once, since each draw moves the generator
equally far, and on CPUs one by one.

A draw in a step that only computes a part of the prompt has to be taken back. vLLM sets the generator's
offset for that, which CPU generators do not have (vLLM 0.32's engine dies of it), so theirs are replaced by
ones that can.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler

_draws_elsewhere: weakref.WeakKeyDictionary[torch.Generator, int] = weakref.WeakKeyDictionary()


class CpuGenerator(torch.Generator):
    """A generator that can take its last draw back."""

    state_before: torch.Tensor  # the last draw

    def get_offset(self) -> int:
        """Return what `set_offset` is told a distance from."""
        return 0

    def set_offset(self, offset: int) -> None:  # noqa: ARG002  vLLM takes back one draw, never more
        """Take the last draw back."""
        self.set_state(self.state_before)


def generator_after(seeded: torch.Generator, draws: int) -> torch.Generator:
    """Return the generator to use instead of `seeded`, which has sampled `draws` tokens elsewhere."""
    generator = seeded
    if seeded.device.type == "cpu":
        generator = CpuGenerator()
        generator.set_state(seeded.get_state())
    if draws:
        _draws_elsewhere[generator] = draws
    return generator


def take_part_in_samplers() -> None:
    """Let samplers that are made from now on make up for the draws of resumed requests."""
    stock = TopKTopPSampler.__init__

    @functools.wraps(stock)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        stock(self, *args, **kwargs)
        sample = self.forward

        def forward(logits: Any, generators: dict[int, torch.Generator], *rest: Any) -> Any:
            for generator in generators.values():
                draws = _draws_elsewhere.pop(generator, 0)
                if draws:
                    _wind(generator, draws, sample, torch.zeros_like(logits[:1]))
                if isinstance(generator, CpuGenerator):
                    generator.state_before = generator.get_state()
            return sample(logits, generators, *rest)

        self.forward = forward

    TopKTopPSampler.__init__ = init


def _wind(generator: torch.Generator, draws: int, sample: Callable[..., Any], logits: torch.Tensor) -> None:
    def draw() -> None:
        sample(logits.clone(), {0: generator}, None, None)  # it may write to them

    if isinstance(generator, CpuGenerator):
        for _ in range(draws):
            draw()
    else:
        start = generator.get_offset()
        draw()
        generator.set_offset(start + draws * (generator.get_offset() - start))
