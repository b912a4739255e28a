"""One image, run once, and what its start-up read."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from copydesk.imagefetcher.convert.spool import Spool
from copydesk.imagefetcher.convert.unpack import Report
from copydesk.imagefetcher.index import BLOCK_SIZE
from copydesk.imagefetcher.registry.image import MAX_CONFIG_BYTES, Image
from copydesk.imagefetcher.registry.repository import Repository
from copydesk.imagefetcher.trace import VERSION, Trace
from copydesk.imagefetcher.tracing.ending import Ending, Until, pass_on, wait_for_ending
from copydesk.imagefetcher.tracing.errors import LaunchError, NotRootError
from copydesk.imagefetcher.tracing.launch import Launch, find_runtime, prepare
from copydesk.imagefetcher.tracing.process import decode_run_config, follow, process_of
from copydesk.imagefetcher.tracing.ranges import BlockMap, DeviceRead, file_reads
from copydesk.imagefetcher.tracing.recorder import Recorder
from copydesk.imagefetcher.tracing.root_folder import root_folder
from copydesk.imagefetcher.tracing.staging import Staged, stage_image

REPORT_S = 0.2
SETTLE_S = 0.2
GRACE_S = 5.0
"""How long the command may take to end once it has been told to, in seconds."""

Interrupts = Callable[[], AbstractContextManager[asyncio.Event]]


@dataclass(frozen=True, slots=True)
class Errand:
    """What to run, and until when: `command` empty is the image's own, `environment` goes over the image's.

    The kernel reads ahead as it does on a node, always the same for the same start-up. That belongs into a trace:
    laid out without it, an image has its hot pages together and what is read along with them anywhere, a sector
    each. `exact` stops it, to see what the program itself touches.
    """

    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    until: Until = field(default_factory=Until)
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Recording:
    """The trace, and how it came about.

    `exit_code` is the command's, None if it had to be ended. `seconds` is how long it was recorded,
    `bytes_read` how much was read meanwhile, in whole blocks.
    """

    trace: Trace
    ending: Ending
    exit_code: int | None
    isolation: str
    seconds: float
    bytes_read: int


async def record_start_up(
    repository: Repository,
    image: Image,
    errand: Errand,
    interrupts: Interrupts,
    work_dir: Path | None = None,
    report: Report = lambda *_: None,
) -> Recording:
    """Run an image once, on this machine's network, and record what it reads.

    `interrupts` is entered once the command runs; its event ends the recording.

    Raises NotRootError, NoRuntimeError, CommandNotFoundError, UserNotFoundError, LaunchError, MountError,
    LayerError, SpoolFullError, RegistryError.
    """
    if os.geteuid() != 0:
        raise NotRootError
    runtime = find_runtime()
    config = decode_run_config(
        repository.host, await repository.blobs.read(image.manifest.config, MAX_CONFIG_BYTES)
    )
    with tempfile.TemporaryDirectory(prefix="copydesk-trace-", dir=work_dir) as name:
        folder = Path(name)
        with Spool(folder) as spool:
            staged = await stage_image(repository, image, folder, spool, report)
            process = process_of(
                config,
                errand.command,
                errand.environment,
                staged.root,
                lambda path: _content(staged, spool, path),
            )
            recorder = Recorder(staged.device)
            with root_folder(staged, recorder, folder, exact=errand.exact) as root:
                launch = prepare(runtime, process, folder, root.path, root.upper)
                with interrupts() as interrupted:
                    outcome = await _run(launch, recorder, errand.until, interrupted, report)
    blocks = BlockMap(staged.root, staged.extents)
    reads = file_reads(outcome.reads, blocks)
    trace = Trace(VERSION, tuple(reads), image.fetched.digest, process.arguments)
    return Recording(
        trace,
        outcome.ending,
        outcome.exit_code,
        launch.isolation,
        round(outcome.seconds, 3),
        sum(-(-read.length // BLOCK_SIZE) * BLOCK_SIZE for read in reads),
    )


@dataclass(frozen=True, slots=True)
class _Outcome:
    reads: Sequence[DeviceRead]
    ending: Ending
    exit_code: int | None
    seconds: float


async def _run(
    launch: Launch, recorder: Recorder, until: Until, interrupted: asyncio.Event, report: Report
) -> _Outcome:
    loop = asyncio.get_running_loop()
    wrote = asyncio.Event()
    recorder.begin()
    began = loop.time()
    process = await asyncio.create_subprocess_exec(
        *launch.arguments,
        env=launch.environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the recording, which then ends the command.
    )
    assert process.stdout is not None
    assert process.stderr is not None
    listening = [asyncio.create_task(pass_on(stream, wrote)) for stream in (process.stdout, process.stderr)]
    reporting = asyncio.create_task(_report(recorder, report))
    try:
        ending = await wait_for_ending(until, process.wait(), wrote, interrupted)
        seconds = loop.time() - began
        reads = recorder.end()
        with contextlib.suppress(TimeoutError):
            # Whose first output says why it cannot start has ended in a moment.
            await asyncio.wait_for(process.wait(), SETTLE_S)
    finally:
        reporting.cancel()
        exit_code = process.returncode
        await _end(process, launch)
        for task in listening:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(task, GRACE_S)
        await asyncio.gather(reporting, return_exceptions=True)
    failure = await asyncio.to_thread(launch.failure)
    if failure:
        raise LaunchError(launch.isolation, failure)
    return _Outcome(reads, ending, exit_code, seconds)


async def _end(process: asyncio.subprocess.Process, launch: Launch) -> None:
    """End the command and whatever it began; with runc that is everything in its control group."""
    if launch.clean_up:
        clean_up = await asyncio.create_subprocess_exec(
            *launch.clean_up, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        await clean_up.wait()
    if process.returncode is None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), GRACE_S if launch.clean_up else 0.0)
    if process.returncode is None:
        process.kill()
        await process.wait()


async def _report(recorder: Recorder, report: Report) -> None:
    while True:
        done = recorder.bytes_read
        report("record", done, done)
        await asyncio.sleep(REPORT_S)


def _content(staged: Staged, spool: Spool, path: str) -> bytes:
    """What a small file of the image holds, past the mount, whose page cache must know nothing yet."""
    node = follow(staged.root, path)
    if node is None or not node.is_regular or node.content < 0:
        return b""
    whole = bytearray(node.size)
    for run in spool.contents[node.content].runs:
        at = run.file_block * BLOCK_SIZE
        whole[at : at + run.blocks * BLOCK_SIZE] = spool.read(run.spool_block, run.blocks)
    return bytes(whole[: node.size])
