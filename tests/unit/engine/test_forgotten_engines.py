"""Engines and devices that are dropped without being closed give back what they hold."""

from __future__ import annotations

import ctypes
import gc
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from copydesk.common.rpc.frames import Priority
from copydesk.inference.engine import GenerateTokens
from copydesk.inference.engine.compiled import load_library
from copydesk.inference.engine.native import CompiledEngine
from copydesk.inference.engine.native.config import read_config
from copydesk.inference.engine.native.devices import Device, NullDevice, OverlappingNullDevice
from copydesk.inference.engine.native.int8.decoder import Int8Decoder
from copydesk.inference.engine.native.null_runner import NullRunner
from tests.unit.engine.beside import Beside
from tests.unit.engine.reference import write_reference

VOCABULARY = 100


def null() -> Device:
    return NullDevice(load_library(), seconds=0.0, vocabulary=VOCABULARY)


def beside() -> Device:
    return OverlappingNullDevice(load_library(), seconds=0.0, vocabulary=VOCABULARY)


def in_python() -> Device:
    return Beside(NullRunner(0.0, VOCABULARY), VOCABULARY)


def engine_over(device: Device) -> CompiledEngine:
    return CompiledEngine(
        load_library(),
        device,
        vocabulary=VOCABULARY,
        slots=2,
        context=30,
        queue=4,
        prefill_tokens=20,
        draft_tokens=0,
    )


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("open_device", [null, beside, in_python])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_forgotten_engine_closes_once_its_device_is_done(open_device: Callable[[], Device], steps: int) -> None:
    engine = engine_over(open_device())
    request = GenerateTokens(prompt=[1, 2, 3], max_tokens=9, stop_ids=[])
    engine.submit(request, deadline=math.inf, priority=Priority.INTERACTIVE, on_done=lambda _: None)
    for _ in range(steps):
        engine.step(0.0)
    descriptor = engine.event_fd
    del engine
    gc.collect()
    assert not is_open(descriptor)


def test_closing_twice_does_not_close_what_others_have_opened_since() -> None:
    engine = engine_over(null())
    engine.close()
    taken = os.open(os.devnull, os.O_RDONLY)
    try:
        assert taken == engine.event_fd
        engine.close()
        del engine
        gc.collect()
        assert is_open(taken)
    finally:
        os.close(taken)


def test_forgotten_devices_are_freed(tmp_path: Path) -> None:
    write_reference("plain", tmp_path)
    library, config = load_library(), read_config(tmp_path)
    closed: list[str] = []

    def closing(name: str) -> Callable[[int], None]:
        function = getattr(library, name)
        function.argtypes = (ctypes.c_void_p,)

        def close(address: int) -> None:
            closed.append(name)
            function(address)

        return close

    class Watched:
        """The library, seen closing."""

        def __getattr__(self, name: str) -> Any:
            return closing(name) if name.endswith("_close") else getattr(library, name)

    watched: Any = Watched()
    devices: list[Device] = [
        NullDevice(watched, seconds=0.0, vocabulary=VOCABULARY),
        Int8Decoder(watched, tmp_path, config, slots=1, context=8, threads=2, folder=tmp_path / "packed"),
    ]
    devices.clear()
    gc.collect()
    assert sorted(closed) == ["cd_decoder_close", "cd_null_close"]
