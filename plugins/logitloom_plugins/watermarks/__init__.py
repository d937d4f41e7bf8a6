"""Shared parts of watermarks: their random permutations, and the statistics of their detectors."""
