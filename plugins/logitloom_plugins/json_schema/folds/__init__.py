"""Folds over the moves of states, each for one question about texts: bytes, reading, completion, distinct items."""
