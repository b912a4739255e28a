"""`copydesk eds inspect` against a NATS that verifies its clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from copydesk.cli.discovery.nats_origin import begin, let_in
from copydesk.cli.discovery.origin import OriginError
from tests.fixtures.fleet_certificates import make_certificates, variables
from tests.fixtures.nats import running_binary


async def test_it_shows_the_certificate_that_variables_name_and_says_where_one_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = make_certificates(tmp_path / "fleet")
    own = fleet / "nats"
    files = f'cert_file: "{own}/tls.crt", key_file: "{own}/tls.key", ca_file: "{own}/ca.crt"'
    with running_binary(tmp_path, configuration=f"tls {{ {files}, verify: true }}") as server:
        bus = await begin(server.url, "", "test")
        with pytest.raises(OriginError, match="asks for TLS"):
            await let_in(bus, server.url, "")
        await bus.close()
        for name, value in variables(fleet, "eds", "COPYDESK_", "NATS").items():
            monkeypatch.setenv(name, value)
        bus = await begin(server.url, "", "test")
        assert await bus.wait_connected(10)
        await bus.close()
        (fleet / "eds" / "tls.crt").unlink()
        with pytest.raises(OriginError, match=r"COPYDESK_NATS_TLS_CERT_FILE: .*: No such file or directory"):
            await begin(server.url, "", "test")
