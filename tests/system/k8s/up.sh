#!/bin/bash
# A real one-node Kubernetes on loopback, as root, no systemd, no docker: etcd, kube-apiserver, kube-controller-manager,
# kube-scheduler, containerd+runc, kubelet. Args: BIN (folder with kube-* by build.sh) W (work folder) SRC (Kubernetes' source, for pause.c)
# With API_ONLY=1 no containerd and no kubelet: nodes and pods are what a test says they are.
# needs: apt-get install --no-install-recommends etcd-server containerd runc containernetworking-plugins iptables conntrack socat ethtool bc
set -euo pipefail
mkdir -p "$2"; BIN=$(readlink -f "$1"); W=$(readlink -f "$2"); SRC=$(readlink -f "$3"); H=$(dirname "$(readlink -f "$0")")
mkdir -p "$W"/{pki,log,kubelet,ctr,cni,img}; cd "$W"; T0=$(date +%s.%N)
if [ ! -f pki/server.crt ]; then ( cd pki
  openssl req -x509 -newkey rsa:2048 -nodes -days 30 -keyout ca.key -out ca.crt -subj /CN=test-ca
  openssl genrsa -out sa.key 2048; openssl rsa -in sa.key -pubout -out sa.pub
  openssl req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=kube-apiserver
  printf 'subjectAltName=DNS:localhost,DNS:kubernetes.default.svc,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' > ext.cnf
  openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile ext.cnf -out server.crt
  TOKEN=$(openssl rand -hex 16); echo "$TOKEN,admin,admin,\"system:masters\"" > tokens.csv
  cat > kubeconfig <<C
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://127.0.0.1:16443", certificate-authority: $W/pki/ca.crt}}]
users: [{name: admin, user: {token: $TOKEN}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
current-context: test
C
) >/dev/null 2>&1; fi
export KUBECONFIG=$W/pki/kubeconfig
run(){ n=$1; shift; nohup "$@" > log/$n.log 2>&1 & echo $! > $n.pid; }
run etcd etcd --data-dir etcd --listen-client-urls http://127.0.0.1:12379 --advertise-client-urls http://127.0.0.1:12379 --listen-peer-urls http://127.0.0.1:12380 --initial-advertise-peer-urls http://127.0.0.1:12380 --initial-cluster default=http://127.0.0.1:12380 --unsafe-no-fsync
run apiserver $BIN/kube-apiserver --etcd-servers=http://127.0.0.1:12379 --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port=16443 --insecure-port=0 --tls-cert-file=pki/server.crt --tls-private-key-file=pki/server.key --client-ca-file=pki/ca.crt --token-auth-file=pki/tokens.csv --authorization-mode=RBAC --service-account-key-file=pki/sa.pub --service-account-signing-key-file=pki/sa.key --service-account-issuer=https://localhost:16443 --service-cluster-ip-range=10.0.0.0/24 --allow-privileged=true --endpoint-reconciler-type=none --kubelet-preferred-address-types=Hostname
if [ -z "${API_ONLY:-}" ]; then
# containerd with its own root, state and socket
cat > containerd.toml <<C
version = 2
root = "$W/ctr/root"
state = "$W/ctr/state"
[grpc]
  address = "$W/ctr/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "operant.test/pause:1"
  stream_server_address = "127.0.0.1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$W/cni"
C
# only there so that the runtime says "network ready": every pod uses hostNetwork: true
echo '{"cniVersion":"0.4.0","name":"lo","plugins":[{"type":"loopback"}]}' > cni/10-lo.conflist
run containerd containerd --config containerd.toml
fi
for i in $(seq 500); do $BIN/kubectl get --raw /readyz >/dev/null 2>&1 && break; sleep .2; done
run cm $BIN/kube-controller-manager --kubeconfig=$KUBECONFIG --bind-address=127.0.0.1 --secure-port=16257 --port=0 --service-account-private-key-file=pki/sa.key --root-ca-file=pki/ca.crt --leader-elect=false
run sched $BIN/kube-scheduler --kubeconfig=$KUBECONFIG --bind-address=127.0.0.1 --secure-port=16259 --port=0 --leader-elect=false
if [ -n "${API_ONLY:-}" ]; then
for i in $(seq 500); do $BIN/kubectl get sa default >/dev/null 2>&1 && break; sleep .1; done
echo "up after $(echo "$(date +%s.%N)-$T0" | bc) s; export KUBECONFIG=$KUBECONFIG"; exit
fi
[ -f img/pause ] || gcc -Os -static -DVERSION=1 -o img/pause $SRC/build/pause/linux/pause.c
"${PYTHON:-python3}" "$H/images.py" img
for f in pause host; do ctr -a ctr/containerd.sock -n k8s.io images import img/$f.tar >/dev/null; done
cat > kubelet.yaml <<C
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
port: 16250
readOnlyPort: 0
healthzBindAddress: 127.0.0.1
healthzPort: 16248
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
enforceNodeAllocatable: []
failSwapOn: false
evictionHard: {memory.available: "100Mi", nodefs.available: "1%", imagefs.available: "1%"}
imageGCHighThresholdPercent: 100
makeIPTablesUtilChains: false
syncFrequency: 5s
nodeStatusUpdateFrequency: 5s
C
export AWS_EC2_METADATA_DISABLED=true   # 1.20's built-in credential provider would ask a metadata address
run kubelet $BIN/kubelet --kubeconfig=$KUBECONFIG --config=kubelet.yaml --root-dir=$W/kubelet --cert-dir=$W/kubelet/pki --container-runtime=remote --container-runtime-endpoint=unix://$W/ctr/containerd.sock --hostname-override=localhost
for i in $(seq 200); do $BIN/kubectl get nodes 2>/dev/null | grep -q ' Ready' && $BIN/kubectl get sa default >/dev/null 2>&1 && break; sleep .2; done
$BIN/kubectl get nodes; echo "up after $(echo "$(date +%s.%N)-$T0" | bc) s; export KUBECONFIG=$KUBECONFIG"
# stop: kubectl delete jobs,pods --all; for f in kubelet sched cm apiserver containerd etcd; do kill $(cat $W/$f.pid); done
