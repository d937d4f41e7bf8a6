"""What watermarks share: their random permutations, and the statistics of their detectors."""
