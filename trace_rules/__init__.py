"""What the program knows, as data: buckets, rules, fixes, facts, job settings and platforms."""
