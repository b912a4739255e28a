"""What the bars say of the rows of one run."""

from copydesk.inference.gpu_check.rows import Row, read_row, with_ratios
from copydesk.inference.gpu_check.table import table
from copydesk.inference.gpu_check.verdict import bars

START = "bf16, synchronous, inputs in Python"


def rate(setting: str, value: float, workload: str = "50/50", part: str = "engine", ok: bool = True) -> Row:
    return Row(part, setting, "some", workload, value=value, unit="requests/s", ok=ok)


def judged(rows: list[Row]) -> dict[str, tuple[float | None, bool | None]]:
    return {row.setting: (row.value, row.ok) for row in bars(rows)}


def test_every_bar_is_judged_by_its_own_two_rates() -> None:
    rows = [
        rate(START, 700.0),
        rate("bf16", 900.0),
        rate("fp8", 1200.0),
        rate("fp8", 300.0, "correction"),
        rate("fp8, drafts", 720.0, "correction"),
        rate("bf16, synchronous, 1 worker", 500.0, part="pod"),
        rate("fp8, 1 worker", 600.0, part="pod"),
        rate("fp8, 4 workers", 810.0, part="pod"),
        rate("fp8, 2 workers", 700.0, part="pod"),
    ]
    assert judged(rows) == {
        "FP8 over bf16": (1.33, True),
        "the whole over the starting point, engine": (1.71, True),
        "the whole over the starting point, pod": (1.62, True),
        "drafts over none": (2.4, True),
    }


def test_a_bar_that_is_missed_says_so() -> None:
    assert judged([rate("bf16", 1000.0), rate("fp8", 1200.0)])["FP8 over bf16"] == (1.2, False)


def test_without_a_right_rate_nothing_is_judged() -> None:
    rows = [rate("bf16", 1000.0), rate("fp8", 2000.0, ok=False)]
    assert judged(rows)["FP8 over bf16"] == (None, None)
    assert bars([]) == []


def test_ratios_are_to_the_first_rate_of_the_same_model_and_load() -> None:
    rows = with_ratios([rate("a", 50.0), rate("b", 75.0), rate("c", 10.0, "correction"), Row("x", "y", value=3.0)])
    assert [row.ratio for row in rows] == [1.0, 1.5, 1.0, None]


def test_rows_survive_their_line_and_other_lines_are_none() -> None:
    row = rate("a", 50.0)
    assert read_row(row.line()) == row
    assert read_row("Loading weights: 100 %") is None


def test_the_table_shows_every_row_in_one_line() -> None:
    lines = table([rate("a", 50.0), Row("x", "y", ok=False, note="two\nlines | here")]).splitlines()
    assert len(lines) == 4
    assert len({len(line) for line in lines}) == 1
    assert "two lines / here" in lines[-1]
    assert "NO" in lines[-1]
