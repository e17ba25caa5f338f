"""The part of the library that recipes import."""
