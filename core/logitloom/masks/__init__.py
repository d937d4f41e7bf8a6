"""Token masks in host memory: prepared rows, and the protocol of compiled kernels."""
