"""The command line: ``logitloom generate``, ``logitloom plugins``."""
