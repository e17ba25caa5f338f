"""Foreign files in, a Trace out: one module per format, and `conform` as the only gate."""
