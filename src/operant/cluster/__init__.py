"""Ray on Kubernetes, one command each: described by a small YAML, applied, forwarded, submitted to, watched."""

from operant.cluster.manifests import render, render_rayjob
from operant.cluster.spec import ClusterSpec, load_cluster

__all__ = ["ClusterSpec", "load_cluster", "render", "render_rayjob"]
