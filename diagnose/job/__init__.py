"""Job files of every shape, read into one set of normalised settings.

Megatron-Bridge dumps, Hydra overrides, performance-recipe command lines, Megatron-LM YAML, flag files and shell scripts, torchtitan
configurations and registries, DeepSpeed JSON, Accelerate YAML, arguments of Hugging Face's Trainer, and a plain job.yaml. What a setting is
called in each of them is data (trace_rules/job_settings.yaml).
"""

from __future__ import annotations

from diagnose.job.model import Job, Setting, SettingValue
from diagnose.job.read import completed, overridden_job, parse_job, read_job
from diagnose.job.sizes import Sizes, absent_kinds, sizes
from diagnose.job.text import parse_overrides

__all__ = [
    "Job", "Setting", "SettingValue", "Sizes", "absent_kinds", "completed", "overridden_job", "parse_job", "parse_overrides", "read_job",
    "sizes",
]  # fmt: skip
