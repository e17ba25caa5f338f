"""From a Trace to numbers: one module per question."""
