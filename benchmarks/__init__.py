"""Speed and memory of the whole program against its goals, as ratios measured in one run: ``python -m benchmarks``."""
