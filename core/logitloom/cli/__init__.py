"""The command line: ``logitloom generate``, ``logitloom automaton``, ``logitloom plugins``."""
