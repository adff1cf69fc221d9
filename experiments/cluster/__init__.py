"""Ready-made descriptions of clusters: for ``ray up`` and for KubeRay."""
