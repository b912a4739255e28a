"""`python -m scripts.audit`: known vulnerabilities and licences of all that is locked.

Exit codes: 0 nothing to mend; 1 something; 2 the policy or the command line cannot be used; 3 nothing to mend as
far as could be seen, but no database of vulnerabilities was reached: that is no pass.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from scripts.audit.advisories import DatabaseError, Fetch, fetch, known
from scripts.audit.installed import installed, licence_of, read_record, write_record
from scripts.audit.locks import VLLM_LOCK, locked_sets, pins
from scripts.audit.policy import Finding, Policy, PolicyError, judge_advisories, judge_licences, read_policy

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
NOT_REACHED = 3


@dataclass(frozen=True, slots=True)
class Report:
    """What was looked at, and what is wrong with it; `vulnerabilities` is None where nobody knows."""

    packages: int
    licences: list[Finding]
    vulnerabilities: list[Finding] | None
    database: str | None
    not_reached: str | None

    @property
    def exit_code(self) -> int:
        """See the module."""
        if self.licences or self.vulnerabilities:
            return 1
        return NOT_REACHED if self.not_reached else 0


def audit(policy: Policy, ask: Fetch | None, root: Path = ROOT) -> Report:
    """Look at all that is locked below `root`; without `ask` at licences alone."""
    here = installed()
    record = read_record(HERE / "recorded.json")
    locked, unlocked = locked_sets(root, {name: each.requires for name, each in here.items()})
    said = [(package, licence_of(package.name, package.version, here, record)) for package in locked]
    licences = judge_licences(said, policy)
    licences += [Finding(name, "it is brought along, but no version of it is locked") for name in unlocked]
    packages = sorted({(package.name, package.version) for package in locked})
    if ask is None:
        return Report(len(packages), licences, None, None, None)
    try:
        database, advisories = known(packages, ask)
    except DatabaseError as error:
        return Report(len(packages), licences, None, None, str(error))
    found = judge_advisories(advisories, policy, datetime.now(UTC).date())
    return Report(len(packages), licences, found, database, None)


def show(report: Report) -> None:
    """Print it for people."""
    for finding in (*report.licences, *(report.vulnerabilities or ())):
        print(f"{finding.subject}: {finding.what}")
    print(f"licences of {report.packages} locked versions: {len(report.licences)} to look at")
    if report.vulnerabilities is not None:
        print(f"known vulnerabilities, by {report.database}: {len(report.vulnerabilities)} to look at")
    if report.not_reached:
        print(f"KNOWN VULNERABILITIES WERE NOT LOOKED FOR: {report.not_reached}", file=sys.stderr)


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m scripts.audit", description=__doc__.splitlines()[0])
    parser.add_argument("--licences", action="store_true", help="licences alone, for which no network is needed")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--policy", type=Path, default=HERE / "policy.toml", help="what is allowed and accepted")
    parser.add_argument(
        "--record", nargs="+", metavar="FOLDER", help="record what vLLM brings, from site-packages"
    )
    options = parser.parse_args(arguments)
    if options.record:
        wanted = pins((ROOT / VLLM_LOCK).read_text())
        print("not there:", ", ".join(write_record(HERE / "recorded.json", wanted, installed(options.record))))
        return 0
    try:
        report = audit(read_policy(options.policy), None if options.licences else fetch)
    except PolicyError as error:
        print(error, file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(asdict(report) | {"exit_code": report.exit_code}, indent=2))
    else:
        show(report)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
