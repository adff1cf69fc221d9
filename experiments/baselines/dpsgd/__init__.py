"""DP-SGD: gradient descent on clipped, noised gradients (Abadi et al. 2016, arXiv:1607.00133)."""
