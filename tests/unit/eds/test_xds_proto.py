"""What is compiled is what the .proto says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from copydesk.eds.xds import discovery_pb2

SOURCES = Path(discovery_pb2.__file__).parents[3]
PROTO = "copydesk/eds/xds/discovery.proto"


def test_the_compiled_messages_are_up_to_date(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(SOURCES), f"--python_out={tmp_path}"]
    subprocess.run([*command, f"--pyi_out={tmp_path}", str(SOURCES / PROTO)], check=True)
    for suffix in ("_pb2.py", "_pb2.pyi"):
        compiled = PROTO.replace(".proto", suffix)
        assert (tmp_path / compiled).read_text() == (SOURCES / compiled).read_text()
