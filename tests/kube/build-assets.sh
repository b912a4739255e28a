#!/usr/bin/env bash
# build-assets.sh [DEST_DIR]
#
# Puts a real `kube-apiserver` and the `etcd` it needs into DEST_DIR, the layout that KUBEBUILDER_ASSETS
# names, for tests against a real API server. Debian 12 packages etcd but of Kubernetes' servers only the
# source, so kube-apiserver is compiled, with Debian's Go, from the Debian source package.
# Everything comes from the Debian mirror this system is set up with, checked by apt's signatures.
# It installs nothing, changes no setting of the system and needs no root: the packages are unpacked
# into a build tree in DEST_DIR, which is removed at the end. Once built, running it again does nothing.
# It takes 6 minutes of CPU, 130 MB of download, 3 GB of disk while it builds and 126 MB at the end.
set -euo pipefail

version=1.20.2                                      # what `kube-apiserver --version` will say
source_version='1.20.5+really1.20.2-1.1+deb12u1'    # the Debian source package that holds it
go=1.19                                             # bookworm's Go
dest=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/copydesk/kube-assets/$version}
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
usable() {
  [[ $("$dest/kube-apiserver" --version 2>/dev/null) == "Kubernetes v$version" ]] &&
    "$dest/etcd" --version >/dev/null 2>&1
}

mkdir -p "$dest"
dest=$(cd "$dest" && pwd)
exec 9<"$dest"
flock 9                                             # one build at a time: a second waits, then finds it done
if usable; then say "already in $dest"; exit 0; fi

build=$dest/.build
trap 'rm -rf "$build"' EXIT
rm -rf "$build"                                     # of a build that was killed outright
mkdir -p "$build"/{tmp,root,apt/sources,apt/lists/partial,apt/archives/partial}
cd "$build"

# The system's own apt sources, in a private copy that also asks for the source packages.
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; do
  [[ -f $file ]] || continue
  sed -E -e 's/^deb([[:space:]].*)/deb\1\ndeb-src\1/' -e 's/^Types:.*/Types: deb deb-src/I' \
    "$file" >"apt/sources/${file##*/}"
done
apt() {
  apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Dir::Cache="$build/apt" \
    -o Dir::State::lists="$build/apt/lists" \
    -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$build/apt/sources" "$@"
}
say "downloading (130 MB)"
apt update
apt download "golang-$go-go" "golang-$go-src" golang-github-modern-go-reflect2-dev etcd-server
apt source --download-only "kubernetes=$source_version"
for deb in *.deb; do dpkg-deb -x "$deb" root; done

# A GOPATH of that source, which has its dependencies in vendor/. Debian's patches concern kubectl only.
# The reflect2 in vendor/ crashes when built with Go 1.18 or newer; Debian's, a later version, does not.
tree=$build/gopath/src/k8s.io/kubernetes
mkdir -p "$tree"
tar -xzf kubernetes_*.orig.tar.gz --strip-components=1 -C "$tree"
rm -r -- *.deb *.tar.* "$tree/vendor/github.com/modern-go/reflect2"
cp -R root/usr/share/gocode/src/github.com/modern-go/reflect2 "$tree/vendor/github.com/modern-go/"

# None of the caller's Go settings, no network, all caches in the build tree.
export GOROOT=$build/root/usr/lib/go-$go GOPATH=$build/gopath GOCACHE=$build/gocache GOTMPDIR=$build/tmp
export GOENV=off GOFLAGS='' GO111MODULE=off GOPROXY=off CGO_ENABLED=0 PATH=$GOROOT/bin:$PATH
cd "$tree"

# pkg/generated/openapi is left out of the source: generate it from all packages marked for it.
say "generating the OpenAPI definitions"
go build -o "$build/openapi-gen" k8s.io/kubernetes/vendor/k8s.io/kube-openapi/cmd/openapi-gen
packages=$(grep -rlE '^// \+k8s:openapi-gen=true' --include='*.go' staging/src/k8s.io pkg |
  grep -vE '/(testdata|examples?|sample-[a-z-]+|code-generator)/' | xargs -n1 dirname | sort -u |
  sed -E 's#^staging/src/#k8s.io/kubernetes/vendor/#; s#^pkg/#k8s.io/kubernetes/pkg/#' | paste -sd,)
"$build/openapi-gen" --logtostderr -i "$packages" -p k8s.io/kubernetes/pkg/generated/openapi \
  -O zz_generated.openapi -h hack/boilerplate/boilerplate.generatego.txt -r "$build/violations" \
  --output-base "$build/gopath/src"

say "compiling kube-apiserver (minutes)"
flags='-s -w'
for package in component-base/version client-go/pkg/version; do
  name=k8s.io/kubernetes/vendor/k8s.io/$package
  flags+=" -X $name.gitVersion=v$version -X $name.gitMajor=1 -X $name.gitMinor=20"
done
go build -trimpath -ldflags "$flags" -o "$build/kube-apiserver" k8s.io/kubernetes/cmd/kube-apiserver

mv "$build/root/usr/bin/etcd" "$build/kube-apiserver" "$dest/"
usable || { say "what was built does not run"; exit 1; }
say "done: $dest"
