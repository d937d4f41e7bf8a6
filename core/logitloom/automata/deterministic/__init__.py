"""Deterministic automata over bytes: built whole or lazily, made minimal, and combined."""
