"""The steps as a graph of what waited for what, and its replay: what would happen if something were shorter, gone, or waited for less."""
