#!/bin/bash
# Stops what up.sh started, by pid, and releases its mounts. Args: BIN W
set -u
BIN=$1; W=$(readlink -f "$2"); export KUBECONFIG=$W/pki/kubeconfig
if [ -f "$W/containerd.pid" ]; then
$BIN/kubectl delete deployments,statefulsets,daemonsets,jobs --all -A --wait=false >/dev/null 2>&1
$BIN/kubectl delete pods --all -A --wait=true --timeout=60s >/dev/null 2>&1
for i in $(seq 60); do [ -z "$($BIN/kubectl get pods -A --no-headers 2>/dev/null)" ] && [ -z "$(ctr -a "$W/ctr/containerd.sock" -n k8s.io containers ls -q 2>/dev/null)" ] && break; sleep .5; done
# sandboxes of deleted pods may outlive them: end the rest through containerd
for c in $(ctr -a "$W/ctr/containerd.sock" -n k8s.io tasks ls -q 2>/dev/null); do ctr -a "$W/ctr/containerd.sock" -n k8s.io tasks kill -s 9 "$c"; done
fi
for f in kubelet sched cm apiserver containerd etcd; do [ -f "$W/$f.pid" ] && kill "$(cat "$W/$f.pid")" 2>/dev/null && for i in $(seq 50); do kill -0 "$(cat "$W/$f.pid")" 2>/dev/null || break; sleep .1; done; kill -9 "$(cat "$W/$f.pid" 2>/dev/null)" 2>/dev/null; rm -f "$W/$f.pid"; done
awk -v w="$W/" 'index($2,w)==1 {print $2}' /proc/mounts | sort -r | while read -r m; do umount "$m" || umount -l "$m"; done
for d in $(find /sys/fs/cgroup -depth -type d -path '*kubepods*' 2>/dev/null); do rmdir "$d" 2>/dev/null; done
grep -c " $W/" /proc/mounts
