"""Files that commands are given or read back: traces, examples, records, the state of an autoscaler, a ledger."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.autoscaler.capacity import Capacity
from copydesk.autoscaler.rules import Rules
from copydesk.autoscaler.state_file import StateFile
from copydesk.cli.fleet.state import FILE, read_state
from copydesk.cli.onboarding.ledger import Ledger
from copydesk.evaluation.jsonl import read_jsonl
from copydesk.loadtest.record import read_record
from copydesk.loadtest.trace import read_trace
from copydesk.simulator.trace_file import read_trace as read_demand
from tests.fuzz.corpus import cases, effort
from tests.fuzz.file_readers import check_readers
from tests.fuzz.hostile_bytes import damaged

CAPACITY = Capacity(concurrency=4.0, rate=20.0, slo_ms=1000.0, concurrencies=(4.0,), shares=(1.0,))


def read_autoscaler(path: Path) -> object:
    path.rename(path.with_name("m.state.json"))
    return StateFile(path.parent, "m").load(Rules(), CAPACITY, 0.0)


def read_fleet(path: Path) -> object:
    path.rename(path.with_name(FILE))
    return read_state(path.parent)


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "arrivals as CSV": ("t.csv", read_trace),
    "arrivals as JSON lines": ("t.jsonl", read_trace),
    "demand": ("d.csv", read_demand),
    "examples": ("e.jsonl", read_jsonl),
    "record": ("r.json", read_record),
    "ledger": ("l.json", Ledger),
    "state of an autoscaler": ("s", read_autoscaler),
    "state of a fleet": ("f", read_fleet),
}
cells = st.one_of(
    st.integers(-2, 1 << 70).map(str),
    st.floats().map(str),
    st.sampled_from(
        ["time", "rate", "TIMESTAMP", "2023-11-16 18:17:03.9799600", "0001-01-01T00:00+23:59", '"', "1e308"]
    ),
)
tables = st.lists(st.lists(cells, max_size=3).map(",".join), max_size=5).map(lambda rows: "\n".join(rows).encode())
WHOLE = [
    b"time,rate\n0,1.5\n60,2.5\n120,2\n",
    b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,10,5\n2023-11-16 18:17:04,10,5\n",
    b'{"time": 1.5}\n2\n{"arrived_at": "2023-11-16T18:17:03"}\n',
    b'{"source": "He go.", "references": ["He goes."]}\n',
    b'{"version":1,"steps":{"a":{"inputs":"x","result":[1],"seconds":0.5}}}',
    b'{"version":1,"model":"m","saved_at":0,"concurrency":4,"rate":20,"factor":1,"service_s":0.5,"ramps":[1],"season":{}}',
]
contents = damaged(tables | st.sampled_from(WHOLE), most=3)


@effort(60)
@given(content=contents, packed=st.booleans(), cut=st.none() | st.integers(0, 60))
def test_a_file_is_read_back_or_refused_with_a_typed_error(
    tmp_path: Path, content: bytes, packed: bool, cut: int | None
) -> None:
    check_readers(READERS.values(), tmp_path, (gzip.compress(content, mtime=0) if packed else content)[:cut])


@pytest.mark.parametrize(("name", "content"), cases("recorded_files"))
def test_files_that_were_kept(tmp_path: Path, name: str, content: bytes) -> None:
    check_readers(READERS.values(), tmp_path, content)
