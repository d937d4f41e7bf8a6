"""Token masks in host memory: prepared rows, buffers for masked logits, and the protocol of compiled kernels."""
