#!/usr/bin/env bash
# Makes the secrets that compose.yaml mounts, random ones, and never touches one that is there already.
#
#   scripts/compose-secrets.sh [FOLDER]      by default the folder that COPYDESK_SECRETS names, else ./secrets
#
# Only who runs this may enter the folder (mode 0700). The files in it can be read by all, since containers read them
# as users of their own, through mounts of single files that go past the folder.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-${COPYDESK_SECRETS:-secrets}}

mkdir -p "$folder"
chmod 0700 "$folder"
cd "$folder"

random() { head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }
hash_of() { printf %s "$1" | sha256sum | cut -d' ' -f1; }

# Writes standard input to a file that is not there yet, whole or not at all.
put() {
  local new
  new=$(mktemp ".$1.XXXXXX")
  cat >"$new"
  chmod 0444 "$new"
  mv -n "$new" "$1"
  rm -f "$new"
  echo "made $folder/$1" >&2
}

have() {
  if [ ! -e "$1" ]; then
    random | put "$1"
  elif [ ! -f "$1" ] || [ ! -s "$1" ]; then
    echo "$folder/$1 is empty, or no file: remove it, and run this again" >&2
    exit 1
  fi
}

have nats_token
have rpc_token
have redis_password
have gateway_api_key
have gateway_metrics_key
have grafana_password

# What follows says the same secrets as servers want to read them.
[ -s nats_auth ] || printf 'authorization { token: "%s" }\n' "$(cat nats_token)" | put nats_auth
[ -s redis_acl ] || printf 'user default on #%s ~* &* +@all\n' "$(hash_of "$(cat redis_password)")" | put redis_acl
[ -s redis_url ] || printf 'redis://:%s@redis:6379/0' "$(cat redis_password)" | put redis_url
[ -s gateway_keys ] || printf 'compose:%s\nprometheus:%s\n' "$(hash_of "$(cat gateway_api_key)")" \
  "$(hash_of "$(cat gateway_metrics_key)")" | put gateway_keys

# A secret that was made anew, beside a file made of the old one, would only show as a refusal somewhere in the fleet.
says() {
  if ! grep -qF "$2" "$1"; then
    echo "$folder/$1 was made from another $3: remove it, and run this again" >&2
    exit 1
  fi
}

says nats_auth "$(cat nats_token)" nats_token
says redis_acl "$(hash_of "$(cat redis_password)")" redis_password
says redis_url "$(cat redis_password)" redis_password

# Other keys may stand in gateway_keys, so it is not to be removed; whoever took a key's line out on purpose is only told.
for key in gateway_api_key gateway_metrics_key; do
  if ! grep -qF "$(hash_of "$(cat "$key")")" gateway_keys; then
    echo "$folder/gateway_keys has no line for $folder/$key, which the gateway will refuse" >&2
  fi
done
