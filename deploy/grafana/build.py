"""Write the dashboards that Grafana reads: `python -m deploy.grafana.build`, at the top of the repository."""

from __future__ import annotations

import json
from pathlib import Path

from deploy.grafana import autoscaler, engine, fleet, gateway, image_fetcher
from deploy.grafana.panels import Dashboard, render

FOLDER = Path(__file__).with_name("dashboards")

DASHBOARDS: tuple[Dashboard, ...] = (
    fleet.DASHBOARD,
    gateway.DASHBOARD,
    autoscaler.DASHBOARD,
    engine.DASHBOARD,
    image_fetcher.DASHBOARD,
)


def files() -> dict[str, str]:
    """Return the files' names and contents."""
    return {
        f"{dashboard.name}.json": json.dumps(render(dashboard), indent=1, ensure_ascii=False) + "\n"
        for dashboard in DASHBOARDS
    }


def main() -> None:
    """Write all of them; what is in the folder beside them is removed."""
    wanted = files()
    FOLDER.mkdir(exist_ok=True)
    for stale in FOLDER.glob("*.json"):
        if stale.name not in wanted:
            stale.unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
