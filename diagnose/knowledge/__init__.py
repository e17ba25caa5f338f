"""What the program knows, read from trace_rules/ and checked."""
