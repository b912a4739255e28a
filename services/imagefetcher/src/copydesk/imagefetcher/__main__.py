"""`python -m copydesk.imagefetcher`: serve images on this node until a signal ends it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import replace

from copydesk.common.bus import BusUrlError
from copydesk.common.process import run, run_until_signal
from copydesk.common.settings import EXIT_BAD_SETTINGS, load_settings, refuse_setting, take_no_arguments
from copydesk.common.telemetry import configure_logging, get_logger
from copydesk.common.tls import TlsError
from copydesk.common.tls.settings import refuse_file
from copydesk.imagefetcher.daemon import Daemon, StateInUseError
from copydesk.imagefetcher.device.errors import MountError
from copydesk.imagefetcher.holder.client import HolderError
from copydesk.imagefetcher.registry.credentials import CredentialStore
from copydesk.imagefetcher.registry.options import RegistryOptions
from copydesk.imagefetcher.registry_upstream import RegistryUpstream
from copydesk.imagefetcher.settings import ImageFetcherSettings
from copydesk.imagefetcher.store.ledger import LedgerError
from copydesk.imagefetcher.web_server import ListenError

_log = get_logger("copydesk.imagefetcher")


def make_upstream(settings: ImageFetcherSettings) -> RegistryUpstream:
    """The registries and mirrors that the settings name."""
    folder = settings.docker_config
    patient = RegistryOptions(
        credentials=CredentialStore(folder) if folder is not None else CredentialStore.of_environment(),
        plain_http=settings.plain_http,
        plain_http_hosts=settings.plain_http_hosts,
        attempts=3,
        timeout=settings.attempt_timeout_ms / 1000,
    )
    return RegistryUpstream(patient, replace(patient, attempts=1), settings.mirror_urls)


async def serve(settings: ImageFetcherSettings) -> None:
    """Run until SIGTERM or SIGINT; raise the error of whatever cannot begin."""
    upstream = make_upstream(settings)
    daemon = Daemon(settings, upstream)
    try:
        await daemon.start()
        await run_until_signal()
    finally:
        await daemon.stop()
        await upstream.close()
    _log.info("image_fetcher_stopped")


def main(arguments: Sequence[str] = ()) -> int:
    """Start from the environment; return the exit code, 2 for settings with which nothing can begin."""
    purpose = "Serve lazily loaded images on this node, until SIGTERM."
    take_no_arguments(ImageFetcherSettings, arguments, program="python -m copydesk.imagefetcher", purpose=purpose)
    settings = load_settings(ImageFetcherSettings)
    configure_logging("imagefetcher", level=settings.log_level)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # else a line for each sector
    try:
        run(serve(settings))
    except BusUrlError as error:
        return refuse_setting(ImageFetcherSettings, "NATS_URL", str(error))
    except TlsError as error:
        return refuse_file(error)
    except ListenError as error:
        return _refuse("cannot listen", str(error))
    except StateInUseError as error:
        return refuse_setting(ImageFetcherSettings, "STATE_DIR", f"{error} ({error.hint})")
    except (MountError, LedgerError, HolderError) as error:
        return _refuse(str(error), error.hint)
    except OSError as error:
        return _refuse("COPYDESK_IMAGEFETCHER_STATE_DIR or RUN_DIR", str(error))
    return 0


def _refuse(what: str, problem: str) -> int:
    print(f"{what}: {problem}", file=sys.stderr)
    return EXIT_BAD_SETTINGS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
