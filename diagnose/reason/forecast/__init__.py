"""What a change would do to a step: changes of its graph, questions, contention."""
