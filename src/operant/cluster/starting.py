"""The file that `operant cluster init` writes: what most people change, with what else there is as comments."""

STARTING = """\
# A Ray cluster on Kubernetes. `operant cluster render` prints what becomes of it, `apply` makes it so.
name: {name}
# namespace: lab              # by default kubectl's, as context and kubeconfig
operator: {operator}            # kuberay: a RayCluster for its operator; none: plain manifests, where there is none
image: {image}   # has Ray, your packages, and Operant if jobs use it
# ray_version: "2.60.0"       # of Ray in the image; needed for autoscaling
# pull_policy: IfNotPresent
# pull_secrets: [registry]

head:
  cpus: 2
  memory: 8GB                 # of it 30 % for Ray's objects (object_store)
  num_cpus: 0                 # Ray puts no tasks on it: it has enough to do

workers:
  - name: workers
    replicas: 2
    cpus: 4
    memory: 16GB
    # gpus: 1
    # tolerations: [{{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}}]
    # node_selector: {{pool: gpu}}
    # min: 0                  # with autoscaling: true
    # max: 8

# env: {{OMP_NUM_THREADS: 1}}
# volumes:                    # for all pods: a claim that is there, or a folder of the node
#   - {{path: /runs, claim: lab-runs}}
#   - {{path: /data, host: /mnt/data, read_only: true}}

# metrics:
#   prometheus: http://prometheus.monitoring:9090     # as Ray's dashboard reaches them
#   grafana: http://grafana.monitoring:3000
#   grafana_iframe: http://127.0.0.1:3000              # as your browser does
#   pod_monitor: true         # where the Prometheus operator runs
"""
