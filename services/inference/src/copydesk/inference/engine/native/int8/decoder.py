"""The 8-bit decoder as a device, and as a runner for whoever plans steps in Python."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from copydesk.common.cache_folder import cache_folder
from copydesk.common.telemetry import get_logger
from copydesk.inference.engine.native.compiled_types import CdRun, CdStep
from copydesk.inference.engine.native.config import ModelConfig
from copydesk.inference.engine.native.errors import InvalidOptionError, UnreadableModelError, UnsupportedModelError
from copydesk.inference.engine.native.int8.block import Block, packed_block
from copydesk.inference.engine.native.int8.packing import CdShape, Packer, block_size, shape_of
from copydesk.inference.engine.native.layout import Run, StepResult
from copydesk.inference.engine.native.rope import cosines_and_sines
from copydesk.inference.engine.native.scales import kept_modules
from copydesk.inference.engine.native.tensors import checkpoint_files

_log = get_logger(__name__)
KERNELS_VARIABLE = "COPYDESK_INT8_KERNELS"
"""Names the kernels to use (amx, avx512, avx2, portable) instead of the best; for tests and comparisons."""

PORTABLE = "portable"
"""The kernels that any processor has; on those without better ones torch is faster."""


_MOST_GROWTH, _SMALL = 16, 16 << 20
"""Packing pads sides of some dozens of numbers, and copies a head that is the embedding."""

_WIDEST_HEAD = 512  # numbers; kWidest of int8_place.inl


class CdDecoderOptions(ctypes.Structure):
    """See int8_decoder.hpp."""

    _fields_ = (
        ("shape", CdShape),
        ("block", ctypes.c_void_p),
        ("cos", ctypes.c_void_p),
        ("sin", ctypes.c_void_p),
        ("slots", ctypes.c_int32),
        ("context", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("cache_tokens", ctypes.c_int32),
        ("kernels", ctypes.c_char_p),
    )


def best_kernels(library: ctypes.CDLL, name: str | None = None) -> str | None:
    """Return the name of the kernels that this processor would use, or `name` if it has those; else None."""
    function = library.cd_kernels
    function.restype = ctypes.c_char_p
    found: bytes | None = function(name.encode() if name else None)
    return found.decode() if found else None


class Int8Decoder:
    """A decoder with `slots` sequences of up to `context` tokens each, on `threads` threads.

    Of slots whose requests have ended, so many keep their memory that the keys and values of `cache_tokens` tokens
    are held in all.

    Raises:
        ModelError: the checkpoint lacks a tensor, its heads are too wide, or there is no memory for so many slots.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        directory: Path,
        config: ModelConfig,
        *,
        slots: int,
        context: int,
        threads: int,
        cache_tokens: int | None = None,
        kernels: str | None = None,
        folder: Path | None = None,
    ) -> None:
        if config.head_dim > _WIDEST_HEAD:
            raise UnsupportedModelError("head_dim", config.head_dim, f"{_WIDEST_HEAD} at the most in int8")
        self._library = library
        self._vocabulary = config.vocabulary
        wanted = kernels or os.environ.get(KERNELS_VARIABLE) or None
        self.kernels = best_kernels(library, wanted)
        if self.kernels is None:
            raise InvalidOptionError("kernels", wanted, "those of this processor: amx, avx512, avx2 or portable")
        shape = shape_of(config)
        folder = folder or cache_folder() / "packed"
        packer = Packer(library, config, directory)
        size, read_as = block_size(library, shape), repr(config.quantisation)
        _check_plausible(directory, size)
        try:
            self._block = packed_block(directory, size, packer.fill, folder, read_as=read_as)
        except OSError as error:
            expected = f"another, or more memory: the packed weights take {size >> 20} MiB"
            raise InvalidOptionError("precision", "int8", expected) from error
        cos, sin = (
            np.ascontiguousarray(t, np.float32) for t in cosines_and_sines(config.rope, config.head_dim, context)
        )
        options = CdDecoderOptions(
            shape=shape,
            block=self._block.address,
            cos=cos.ctypes.data,
            sin=sin.ctypes.data,
            slots=slots,
            context=context,
            threads=threads,
            cache_tokens=slots * context if cache_tokens is None else cache_tokens,
            kernels=wanted.encode() if wanted else None,
        )
        library.cd_decoder_open.restype = ctypes.c_void_p
        self._address = library.cd_decoder_open(ctypes.byref(options))
        if not self._address:
            raise InvalidOptionError("slots", slots, f"fewer: there is no memory for {context} tokens each")
        library.cd_decoder_close.argtypes = (ctypes.c_void_p,)
        self._release = weakref.finalize(self, _release, library, self._address, self._block)
        self._release.atexit = False  # a thread may be stepping still
        library.cd_decoder_step.restype = ctypes.c_int32
        library.cd_decoder_step.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        _log.info("int8_decoder_ready", kernels=self.kernels, threads=threads)
        if kept := kept_modules(config.quantisation, config.layers):
            _log.info("int8_rounds_weights_kept_in_the_checkpoint", modules=len(kept), first=kept[0])

    def device(self) -> tuple[int, int]:
        """The addresses of its step function and of itself."""
        function = ctypes.cast(self._library.cd_decoder_step, ctypes.c_void_p).value
        assert function is not None
        return function, self._address

    def failure(self) -> BaseException | None:
        """A step fails only for want of memory."""
        return MemoryError("there is no memory for a step of so many tokens")

    def run(self, runs: Sequence[Run]) -> StepResult:
        """Run one step; raises `MemoryError`."""
        tokens = np.array([token for run in runs for token in run.tokens], np.int32)
        table = (CdRun * len(runs))(
            *(CdRun(run.slot, run.start, len(run.tokens), run.samples, run.scores) for run in runs)
        )
        samples = sum(run.samples for run in runs)
        scored = sum(run.samples for run in runs if run.scores)
        chosen, scores = np.zeros(samples, np.int32), np.zeros((scored, self._vocabulary), np.float32)
        step = CdStep(
            runs=len(runs),
            tokens=len(tokens),
            samples=samples,
            scored=scored,
            run=table,
            token=tokens.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
            chosen=chosen.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
            scores=scores.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
        )
        if self._library.cd_decoder_step(self._address, ctypes.byref(step)):
            raise MemoryError("there is no memory for a step of so many tokens")
        return StepResult.split(runs, chosen, scores)

    def close(self) -> None:
        """Free the caches and end the threads; a decoder that is forgotten is closed as well."""
        self._release()
        self._address = None


def _check_plausible(directory: Path, size: int) -> None:
    """Refuse a block that its checkpoint could never fill, before a disk is filled for it."""
    stored = sum(path.stat().st_size for path in checkpoint_files(directory))
    if size > _MOST_GROWTH * stored + _SMALL:
        raise UnreadableModelError(directory, f"has {stored} bytes of weights, far fewer than config.json implies")


def _release(library: ctypes.CDLL, address: int, _block: Block) -> None:
    library.cd_decoder_close(address)
