"""Facts: the numbers that rules read, with what each is taken from."""
