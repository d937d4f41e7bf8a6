"""Candidate generators for speculative decoding: one file per plug-in (group ``logitloom.candidates``)."""
