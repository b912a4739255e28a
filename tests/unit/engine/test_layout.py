from hypothesis import given
from hypothesis import strategies as st

from copydesk.inference.engine.native.layout import Layout, Run, lay_out

CONTEXT = 100


def run(slot: int, start: int, length: int, *, samples: int = 1) -> Run:
    return Run(request_id=slot + 1000, slot=slot, start=start, tokens=[slot] * length, samples=samples)


@st.composite
def some_runs(draw: st.DrawFn) -> list[Run]:
    slots = draw(st.lists(st.integers(0, 40), unique=True, min_size=1, max_size=12))
    runs = []
    for slot in slots:
        length = draw(st.one_of(st.just(1), st.integers(1, 40)))
        start = draw(st.integers(0, CONTEXT - length))
        runs.append(run(slot, start, length, samples=draw(st.integers(0, length))))
    return runs


@given(some_runs())
def test_every_token_has_a_cell_of_its_own_in_the_row_of_its_slot(runs: list[Run]) -> None:
    layout = lay_out(runs, CONTEXT)
    token_slots = [slot for r in layout.runs for slot in r.tokens]
    token_positions = [position for r in layout.runs for position in range(r.start, r.end)]
    assert sorted(layout.runs, key=lambda r: r.slot) == sorted(runs, key=lambda r: r.slot)
    assert [(g.first, g.last) for g in layout.groups] == edges(layout)
    for group in layout.groups:
        count = group.last - group.first
        cells = list(range(count)) if group.cells is None else group.cells
        sources = list(range(count)) if group.sources is None else group.sources
        assert len(set(cells)) == len(cells) == count
        assert len(sources) == len(group.positions) == len(group.slots) * group.width
        for token, cell in enumerate(cells, start=group.first):
            assert sources[cell] == token - group.first
            assert group.slots[cell // group.width] == token_slots[token]
            assert group.positions[cell] == token_positions[token] < group.reach <= CONTEXT
        assert all(0 <= source < count for source in sources)
        assert all(0 <= position < group.reach for position in group.positions)


def edges(layout: Layout) -> list[tuple[int, int]]:
    """The groups' bounds if they follow one another and cover all tokens."""
    ends = [group.last for group in layout.groups]
    assert ends[-1] == sum(len(r.tokens) for r in layout.runs)
    return list(zip([0, *ends], ends, strict=False))


@given(some_runs())
def test_as_many_of_the_last_tokens_of_each_run_are_sampled_as_it_says(runs: list[Run]) -> None:
    layout = lay_out(runs, CONTEXT)
    places = [(r.slot, position) for r in layout.runs for position in range(r.start, r.end)]
    wanted = [(r.slot, position) for r in layout.runs for position in range(r.end - r.samples, r.end)]
    assert [places[index] for index in layout.sampled] == wanted


def test_a_draft_is_what_stands_behind_the_first_sampled_token() -> None:
    tokens = [5, 6, 7, 8]
    assert [list(Run(1, 0, 0, tokens, samples).drafted) for samples in range(5)] == [
        [],
        [],
        [8],
        [7, 8],
        [6, 7, 8],
    ]


@given(some_runs())
def test_a_group_never_computes_many_more_rows_than_it_has_runs(runs: list[Run]) -> None:
    for group in lay_out(runs, CONTEXT).groups:
        members = len({r.slot for r in runs} & set(group.slots))
        if group.contiguous:
            assert list(group.slots) == list(range(group.slots[0], group.slots[-1] + 1))
        assert len(group.slots) <= 1.5 * members


def test_neighbouring_slots_are_read_in_place_without_rearranging() -> None:
    (group,) = lay_out([run(4, 7, 1), run(2, 30, 1), run(3, 9, 1)], CONTEXT).groups
    assert (group.slots, group.contiguous, group.cells, group.sources) == ((2, 3, 4), True, None, None)
    assert group.positions == [30, 9, 7]
    assert group.reach == 32


def test_a_short_gap_is_read_over() -> None:
    (group,) = lay_out([run(0, 5, 1), run(1, 5, 1), run(3, 6, 1)], CONTEXT).groups
    assert (group.slots, group.contiguous, group.cells) == ((0, 1, 2, 3), True, [0, 1, 3])


def test_scattered_slots_are_gathered() -> None:
    (group,) = lay_out([run(0, 5, 1), run(30, 6, 1)], CONTEXT).groups
    assert (group.slots, group.contiguous, group.cells) == ((0, 30), False, None)


def test_short_runs_come_first_and_are_not_padded_to_long_ones() -> None:
    layout = lay_out([run(0, 0, 30), run(1, 8, 1), run(2, 0, 3), run(3, 0, 28)], CONTEXT)
    assert [group.width for group in layout.groups] == [3, 30]
    assert [r.slot for r in layout.runs] == [1, 2, 0, 3]


def test_drafts_of_different_lengths_in_neighbouring_slots_read_the_cache_in_place() -> None:
    (group,) = lay_out([run(0, 20, 1), run(1, 30, 8), run(2, 9, 4)], CONTEXT).groups
    assert (group.slots, group.contiguous, group.width) == ((0, 1, 2), True, 8)
    assert group.cells == [0, *range(8, 16), *range(16, 20)]
