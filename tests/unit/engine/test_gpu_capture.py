"""What is captured for a GPU, run over tensors that have a shape and a device of their own but no numbers.

torch's "meta" device stands for a GPU on any machine. It refuses what a graph may not have: numbers that are
looked at by the host, and sizes that depend on numbers; tensors of another device are refused here.
"""

import inspect
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from copydesk.inference.engine.native.cache import SlotCache
from copydesk.inference.engine.native.checkpoint import QuantisedWeight
from copydesk.inference.engine.native.config import ModelConfig
from copydesk.inference.engine.native.cuda.backend import GpuBackend
from copydesk.inference.engine.native.cuda.buckets import Bucket, Extent, buckets_for
from copydesk.inference.engine.native.cuda.padded_layout import places_of
from copydesk.inference.engine.native.cuda.padded_step import padded_step
from copydesk.inference.engine.native.decoder import Decoder
from copydesk.inference.engine.native.fp8.choice import Fp8Arithmetic
from copydesk.inference.engine.native.fp8.kernels import ROW_STEP, TorchKernels
from copydesk.inference.engine.native.fp8.products import Product
from copydesk.inference.engine.native.maps import Maps, Part
from copydesk.inference.engine.native.rope import Rope
from copydesk.inference.engine.native.rope_table import RopeTable
from copydesk.inference.engine.native.runner import likeliest
from copydesk.inference.engine.native.weights import DecoderWeights, LayerWeights

GPU = torch.device("meta")
EXTENT = Extent(slots=16, context=256, prefill_tokens=64, draft_tokens=48)
CONFIG = ModelConfig(
    vocabulary=512,
    hidden=192,
    intermediate=256,
    layers=2,
    heads=6,
    kv_heads=2,
    head_dim=32,
    positions=256,
    norm_epsilon=1e-5,
    rope=Rope(),
    tied=False,
)
EPSILON = CONFIG.norm_epsilon


class OneDevice(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Looks at all that each operation is given."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for value in tree_leaves((args, kwargs)):
            if isinstance(value, torch.Tensor) and value.device != GPU:
                raise ElsewhereError(func)
        return func(*args, **(kwargs or {}))


class ElsewhereError(AssertionError):
    pass


@pytest.fixture(autouse=True)
def _watched() -> Iterator[None]:
    with torch.inference_mode(), OneDevice():  # type: ignore[no-untyped-call]
        yield


def numbers(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device=GPU)


def decoder(product: Product | None = None) -> Decoder:
    """As it is built of a checkpoint: in bfloat16, or of linear maps in FP8."""
    arithmetic = None if product is None else Fp8Arithmetic(TorchKernels(ROW_STEP), product)
    maps = Maps(torch.bfloat16, packed=False, fp8=arithmetic)

    def part(outputs: int, inputs: int) -> Part:
        if arithmetic is None:
            return Part(numbers(outputs, inputs))
        scale = numbers(outputs, 1, dtype=torch.float32)
        return Part(QuantisedWeight(numbers(outputs, inputs, dtype=torch.float8_e4m3fn), scale))

    hidden, inner = CONFIG.hidden, CONFIG.intermediate
    queries, keys = CONFIG.heads * CONFIG.head_dim, CONFIG.kv_heads * CONFIG.head_dim
    norm = numbers(hidden)
    layer = LayerWeights(
        attention_in=maps.normed(norm, EPSILON, [part(queries, hidden), part(keys, hidden), part(keys, hidden)]),
        output=maps.linear([part(hidden, queries)]),
        mlp=maps.mlp(norm, EPSILON, part(inner, hidden), part(inner, hidden), part(hidden, inner)),
    )
    head = maps.normed(norm, EPSILON, [Part(numbers(CONFIG.vocabulary, hidden))])
    return Decoder(CONFIG, DecoderWeights(numbers(CONFIG.vocabulary, hidden), (layer,) * CONFIG.layers, head))


def captured(model: Decoder, bucket: Bucket) -> torch.Tensor:
    """What `BucketDevice` has captured."""
    places = places_of(bucket)
    rope = RopeTable(numbers(EXTENT.context, CONFIG.head_dim), numbers(EXTENT.context, CONFIG.head_dim))
    cache = SlotCache(CONFIG, EXTENT.slots + 1, EXTENT.context, torch.bfloat16, GPU)
    integers = numbers(places.size, dtype=torch.int64)
    chosen = numbers(EXTENT.samples, dtype=torch.int64)
    states = model.states(padded_step(bucket, places, integers, chosen, rope, CONFIG.group), cache)
    assert states.shape == (bucket.samples, CONFIG.hidden)
    chosen[: bucket.samples].copy_(likeliest(model.scores(states)))
    return states


def test_nothing_in_a_graph_is_elsewhere_or_looked_at() -> None:
    model = decoder()
    for bucket in buckets_for(EXTENT, 1 << 20)[::3]:
        states = captured(model, bucket)
        assert (states.device.type, states.dtype) == ("meta", torch.bfloat16)


@pytest.mark.parametrize("product", [Product.ROWWISE, Product.TENSORWISE])
def test_products_in_fp8_take_what_a_bucket_gives_them(product: Product) -> None:
    model = decoder(product)
    for bucket in buckets_for(EXTENT, 1 << 20)[::5]:
        assert captured(model, bucket).dtype == torch.bfloat16


def test_what_a_graph_may_not_have_would_be_noticed() -> None:
    with pytest.raises(RuntimeError, match="meta tensors"):
        numbers(3)[0].item()
    with pytest.raises(ElsewhereError):
        numbers(3, 4).index_select(0, torch.zeros(2, dtype=torch.int64))
    with pytest.raises((RuntimeError, NotImplementedError)):
        numbers(3, 4)[numbers(3, dtype=torch.bool)]


class Recorded:
    """In place of torch's CUDA functions: says in which order they were called."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def stream(self, device: Any = None) -> Any:
        return RecordedStream(self)

    def graph(self, graph: Any, **how: Any) -> Any:
        inspect.signature(torch.cuda.graph.__init__).bind(None, graph, **how)
        return RecordedCapture(self, how)


class RecordedStream:
    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded

    def synchronize(self) -> None:
        self._recorded.calls.append("synchronize")


class RecordedCapture:
    def __init__(self, recorded: Recorded, how: dict[str, Any]) -> None:
        self._recorded, self._how = recorded, how

    def __enter__(self) -> None:
        self._recorded.calls.append(("begin", self._how["pool"], self._how["capture_error_mode"]))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorded.calls.append("end")


class RecordedGraph:
    def replay(self) -> None: ...


class RecordedEvent:
    def __init__(self) -> None:
        self.recorded_on: Any = None

    def record(self, stream: Any) -> None:
        self.recorded_on = stream

    def synchronize(self) -> str:
        return "waited"


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    found = Recorded()
    monkeypatch.setattr(torch.cuda, "Stream", found.stream)
    monkeypatch.setattr(torch.cuda, "graph", found.graph)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", RecordedGraph)
    monkeypatch.setattr(torch.cuda, "Event", RecordedEvent)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 7))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: found.calls.append(("ready", device)))
    return found


def test_what_is_prepared_runs_first_and_is_captured_then(recorded: Recorded) -> None:
    backend = GpuBackend(GPU)
    assert recorded.calls == [("ready", GPU)], "weights and cache are there before another stream reads them"
    recorded.calls.clear()
    replay = backend.prepare(lambda: recorded.calls.append("work"))
    capture = ["work", "work", "synchronize", ("begin", (0, 7), "thread_local"), "work", "end"]
    assert recorded.calls == capture
    backend.prepare(lambda: recorded.calls.append("work"))
    assert recorded.calls[len(capture) :] == capture, "all from the same pool"
    backend.submit(replay)
    assert recorded.calls.count("work") == 6, "a replay does not run the code again"


def test_a_mark_is_an_event_of_the_stream(recorded: Recorded) -> None:
    backend = GpuBackend(GPU)
    wait = backend.mark()
    assert wait() == "waited"
    assert isinstance(wait.__self__.recorded_on, RecordedStream)  # type: ignore[attr-defined]
