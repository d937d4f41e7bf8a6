"""Logits processors: one file per plug-in (group ``logitloom.processors``)."""
