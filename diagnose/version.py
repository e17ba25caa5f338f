"""The version of the program, for every floor."""

__version__ = "0.1.0"
