#!/usr/bin/env bash
# run-apiserver.sh ASSETS_DIR WORK_DIR PORT [KUBE_APISERVER_FLAG...]
#
# Runs a throw-away control plane for tests: etcd and kube-apiserver from ASSETS_DIR (as built by
# build-assets.sh), with RBAC, on https://127.0.0.1:PORT only. etcd listens on sockets in WORK_DIR,
# so PORT is the only port taken. There is no controller and no kubelet: objects are stored, nothing acts
# on them. Once it is ready it prints
#     url https://127.0.0.1:PORT
#     ca WORK_DIR/certs/apiserver.crt
#     tokens WORK_DIR/tokens.csv
# and stays until SIGTERM or SIGINT, or until one of the two ends (then it exits 1); both are then stopped.
# tokens.csv (token,user,uid,"groups") is used as it is where the caller has written one, its first row
# being taken for an administrator's; else it is written with `admin`, who may do everything, and `nobody`,
# whom no role names. What is in WORK_DIR is kept: run again on it, the server resumes with the same data.
# It needs curl, besides what every Debian has.
set -euo pipefail
umask 077

(($# >= 3)) || { echo "usage: ${0##*/} ASSETS_DIR WORK_DIR PORT [KUBE_APISERVER_FLAG...]" >&2; exit 2; }
command -v curl >/dev/null || { echo "${0##*/}: curl is missing" >&2; exit 1; }
mkdir -p "$2"
assets=$(cd "$1" && pwd) work=$(cd "$2" && pwd) url=https://127.0.0.1:$3
shift 3
ca=$work/certs/apiserver.crt tokens=$work/tokens.csv
cd "$work"

api='' etcd=''
stop() {                                            # the API server first, while it still has its store
  trap '' TERM INT
  for pid in $api $etcd; do
    kill -TERM "$pid" 2>/dev/null || continue
    for ((i = 0; i < 20; i++)); do kill -0 "$pid" 2>/dev/null || continue 2; sleep 0.1; done
    kill -KILL "$pid" 2>/dev/null || true           # it waits for its clients' open watches
  done
  wait
}
fail() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  tail -n 5 etcd.log kube-apiserver.log >&2 || true
  exit 1
}
trap stop EXIT
trap 'exit 0' TERM INT

random() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }
[[ -s $tokens ]] || printf '%s,admin,admin,"system:masters"\n%s,nobody,nobody\n' "$(random)" "$(random)" >"$tokens"

# An etcd that was killed outright leaves its sockets, and would take them for those of another one.
rm -f etcd:0 peer:0
# setpriv: should this script be killed outright, the kernel stops the two.
# etcd names the file of a unix socket by host and port, here `etcd:0` and `peer:0` in WORK_DIR.
setpriv --pdeathsig TERM "$assets/etcd" --data-dir etcd --unsafe-no-fsync \
  --listen-client-urls unix://etcd:0 --advertise-client-urls unix://etcd:0 \
  --listen-peer-urls unix://peer:0 --initial-advertise-peer-urls unix://peer:0 \
  --initial-cluster default=unix://peer:0 </dev/null >etcd.log 2>&1 &
etcd=$!

# The serving key that kube-apiserver makes in certs/ serves for service accounts too. No controller makes
# those, hence no admission plugin that asks for them. Privileged pods are allowed, as kubeadm has it. EndpointSlice
# is v1beta1 in this version: off, so that the v1 below can take its group. Old revisions are compacted after 10 to
# 20 seconds, not 5 to 10 minutes.
setpriv --pdeathsig TERM "$assets/kube-apiserver" --etcd-servers=unix://etcd:0 --etcd-compaction-interval=10s \
  --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port="${url##*:}" --insecure-port=0 \
  --cert-dir=certs --service-account-issuer=https://kubernetes.default.svc \
  --service-account-key-file=certs/apiserver.key --service-account-signing-key-file=certs/apiserver.key \
  --token-auth-file="$tokens" --authorization-mode=RBAC --disable-admission-plugins=ServiceAccount \
  --allow-privileged --runtime-config=discovery.k8s.io/v1beta1=false --service-cluster-ip-range=10.96.0.0/16 \
  --endpoint-reconciler-type=none "$@" </dev/null >kube-apiserver.log 2>&1 &
api=$!

request() {                                         # PATH [CURL_OPTION...]: the answer's HTTP status
  curl -s -o reply -w '%{http_code}' --max-time 10 --cacert "$ca" \
    -H @<(printf 'Authorization: Bearer %s' "$(head -n1 "$tokens" | cut -d, -f1)") "$url$1" "${@:2}" || true
}
await() {                                           # PATH: until it answers 200
  until [[ $(request "$1") == 200 ]]; do
    kill -0 "$etcd" 2>/dev/null || fail 'etcd ended'
    kill -0 "$api" 2>/dev/null || fail 'kube-apiserver ended'
    ((SECONDS < 180)) || fail "no $1 after $SECONDS s"
    sleep 0.2
  done
}
await /readyz
await /api/v1/namespaces/default

# EndpointSlice discovery.k8s.io/v1 as a custom resource with the fields of the real one.
crds=/apis/apiextensions.k8s.io/v1/customresourcedefinitions
status=$(request $crds -X POST -H 'Content-Type: application/yaml' --data-binary @- <<'YAML'
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: endpointslices.discovery.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, a test fixture"}
spec:
  group: discovery.k8s.io
  scope: Namespaced
  names: {plural: endpointslices, singular: endpointslice, kind: EndpointSlice, listKind: EndpointSliceList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        required: [addressType, endpoints]
        properties:
          addressType: {type: string, enum: [IPv4, IPv6, FQDN]}
          endpoints:
            type: array
            maxItems: 1000
            items:
              type: object
              required: [addresses]
              properties:
                addresses: {type: array, minItems: 1, maxItems: 100, items: {type: string}}
                conditions:
                  type: object
                  properties: {ready: {type: boolean}, serving: {type: boolean}, terminating: {type: boolean}}
                deprecatedTopology: {type: object, additionalProperties: {type: string}}
                hints: {type: object, x-kubernetes-preserve-unknown-fields: true}
                hostname: {type: string}
                nodeName: {type: string}
                targetRef: {type: object, x-kubernetes-preserve-unknown-fields: true}
                zone: {type: string}
          ports:
            type: array
            maxItems: 100
            items:
              type: object
              properties:
                appProtocol: {type: string}
                name: {type: string}
                port: {type: integer, format: int32, minimum: 1, maximum: 65535}
                protocol: {type: string, enum: [TCP, UDP, SCTP]}
YAML
)
[[ $status == 201 || $status == 409 ]] || fail "the EndpointSlice resource was refused ($status): $(<reply)"
await /apis/discovery.k8s.io/v1/endpointslices

printf 'url %s\nca %s\ntokens %s\n' "$url" "$ca" "$tokens"
wait -n || true
kill -0 "$etcd" 2>/dev/null || fail 'etcd ended'
fail 'kube-apiserver ended'
