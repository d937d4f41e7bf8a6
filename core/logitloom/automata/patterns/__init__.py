"""Patterns: from the syntax of regular expressions to positions."""
