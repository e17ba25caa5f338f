"""Stands in for `diagnose.nsight_recipe` where the package moe-diagnose is not installed.

Nsys then finds this folder under the name diagnose.
"""

import sys

raise ImportError(
    f"The Python that runs recipes ({sys.executable}) has no moe-diagnose. Nothing was analysed. "
    f"Install it there: {sys.executable} -m pip install moe-diagnose"
)
