"""Private empirical risk minimisation (Chaudhuri, Monteleoni, Sarwate 2011, JMLR 12, arXiv:0912.0071)."""
