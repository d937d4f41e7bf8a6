"""Strings and numbers: automata over their texts, with truth vectors at their ends."""
