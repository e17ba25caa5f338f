"""The formats of job files: one reader each, in the order in which they are asked whether a text is theirs."""

from __future__ import annotations

from collections.abc import Mapping

from diagnose.job.formats import (
    accelerate,
    arguments,
    deepspeed,
    hugging_face,
    hydra,
    megatron_bridge,
    megatron_deepspeed,
    megatron_lm,
    nemo,
    nemo_rl,
    overrides,
    plain,
    recipe,
    rl_fsdp,
    torchtitan,
    veomni,
    verl_fsdp,
    verl_sft,
    xtuner,
)
from diagnose.job.formats.reader import Reader

READERS: Mapping[str, Reader] = {
    module.READER.name: module.READER
    for module in (
        torchtitan,
        xtuner,
        veomni,
        verl_fsdp,
        verl_sft,
        nemo_rl,
        rl_fsdp,
        hydra,
        nemo,
        arguments,
        overrides,
        recipe,
        deepspeed,
        accelerate,
        hugging_face,
        megatron_deepspeed,
        megatron_lm,
        megatron_bridge,
        plain,
    )
}
