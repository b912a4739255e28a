#!/usr/bin/env bash
# Makes FOLDER/bin/ctr-remote and FOLDER/bin/stargz of Debian's packages, for `python -m bench.image --stargz FOLDER`.
#
# Debian has the stargz snapshotter's client and its library, but not the snapshotter as a process: main.go is that. One
# package that the library needs is missing (k8s.io/cri-api); of it only a type is used, which cri.go stands in for.
# Packages are unpacked into FOLDER, not installed (1.5 GB, some minutes).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(realpath -m "${1:?usage: $0 FOLDER}")
mkdir -p "$folder"/{bin,packages/partial,root,stub/src/k8s.io/cri-api/pkg/apis/runtime/v1alpha2}

apt-get -qq -y --no-install-recommends --download-only -o Dir::Cache::archives="$folder/packages" install \
  stargz-snapshotter golang-github-containerd-stargz-snapshotter-dev golang-1.19-go golang-1.19-src
for package in "$folder"/packages/*.deb; do
  dpkg -x "$package" "$folder/root"
done
cp "$folder/root/usr/bin/ctr-remote" "$folder/bin/"
cp "$here/cri.go" "$folder/stub/src/k8s.io/cri-api/pkg/apis/runtime/v1alpha2/"

export GOROOT=$folder/root/usr/lib/go-1.19 GOPATH=$folder/stub:$folder/root/usr/share/gocode GOCACHE=$folder/cache
export GO111MODULE=off CGO_ENABLED=0
cd "$here"
"$GOROOT/bin/go" build -o "$folder/bin/stargz" main.go
echo "$folder/bin: $("$folder/bin/ctr-remote" --version)"
