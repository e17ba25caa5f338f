"""The formats of job files: one reader each, in the order in which they are asked whether a text is theirs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from diagnose.job.formats import megatron_bridge, megatron_lm, overrides, plain, recipe, torchtitan
from diagnose.job.formats.reader import Reader

READERS: Mapping[str, Reader] = MappingProxyType(
    {
        reader.name: reader
        for reader in (
            torchtitan.READER,
            overrides.READER,
            recipe.READER,
            megatron_lm.READER,
            megatron_bridge.READER,
            plain.READER,
        )
    }
)
