"""The verbs of the command line, one module each: arguments → one call → one renderer → an exit code.

Nothing heavy is imported before the arguments are known to be right.
"""
