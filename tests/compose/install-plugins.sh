#!/usr/bin/env bash
# Gets docker's plug-ins compose and buildx from Debian 13, whose packages run on Debian 12 as well, where there are
# none of a version that is of use.
#
#   tests/compose/install-plugins.sh FOLDER      for DOCKER_CONFIG=FOLDER
set -euo pipefail
folder=$1
if [ -x "$folder/cli-plugins/docker-compose" ] && [ -x "$folder/cli-plugins/docker-buildx" ]; then
  exit
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$folder/cli-plugins"
echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main' >"$work/sources"
apt=(apt-get -qq -o "Dir::Etc::sourcelist=$work/sources" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$work/lists"
  -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root)
"${apt[@]}" update
(cd "$work" && "${apt[@]}" download docker-compose docker-buildx)
for package in "$work"/*.deb; do
  dpkg -x "$package" "$work/root"
done
mv "$work"/root/usr/libexec/docker/cli-plugins/docker-{compose,buildx} "$folder/cli-plugins/"
