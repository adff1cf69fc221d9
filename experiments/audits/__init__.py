"""Audits of whole runs: canaries in and out of the private data, and what everything that is published tells of them."""
