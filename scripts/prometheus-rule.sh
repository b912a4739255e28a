#!/usr/bin/env bash
# Writes deploy/prometheus/alerts.yml as the Prometheus operator wants it. A test compares the two, so after a change:
#   scripts/prometheus-rule.sh > k8s/base/monitoring/rule.yaml
set -euo pipefail
cd "$(dirname "$0")/.."

cat <<'HEAD'
# Made of deploy/prometheus/alerts.yml, which says why, by scripts/prometheus-rule.sh. Change that one.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: copydesk
  labels:
    app.kubernetes.io/part-of: copydesk
spec:
HEAD
sed -n '/^groups:/,$ { s/^\(.\)/  \1/; p }' deploy/prometheus/alerts.yml
