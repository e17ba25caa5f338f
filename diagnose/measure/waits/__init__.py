"""Why compute was absent: dependencies, stalls, chains of what blocked, and what their removal could give back."""
