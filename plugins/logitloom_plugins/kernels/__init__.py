"""Compiled loops for host memory: one file per plug-in (group ``logitloom.kernels``)."""
