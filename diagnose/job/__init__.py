"""Job files of every shape, read into one set of normalised settings.

Megatron-Bridge dumps, Hydra overrides, performance-recipe command lines, Megatron-LM YAML, flag files and shell scripts, torchtitan
configurations and registries, DeepSpeed JSON, Accelerate YAML, arguments of Hugging Face's Trainer, and a plain job.yaml. What a setting is
called in each of them is data (trace_rules/job_settings.yaml). What reads them is `read`, which a run without a job file never loads.
"""

from __future__ import annotations

from diagnose.job.model import Job, Setting, SettingValue, count_of

__all__ = ["Job", "Setting", "SettingValue", "count_of"]
