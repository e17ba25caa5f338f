"""The documents that the program writes and reads: one record for each thing that they say."""
