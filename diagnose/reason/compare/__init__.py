"""Two sides of a comparison, each of one run or several; `runs.compare` makes it, the other modules each know one thing about it."""
