"""Settings of the engine: ever fewer are measured for longer, and the default goes only for what is faster."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from copydesk.cli.onboarding.trial_fleet import environment
from copydesk.cli.onboarding.tuning import DEFAULT, Measured, Setting, Tuned, settings_to_try, survivors, tune

SETTINGS = settings_to_try(4, quick=False)


def tuned(speeds: Mapping[str, float], asked: list[tuple[str, float, int]] | None = None) -> Tuned:
    def measure(setting: Setting, seconds: float, number: int) -> Measured:
        if asked is not None:
            asked.append((setting.name, seconds, number))
        speed = speeds.get(setting.name, 10.0)
        if speed == 0.0:
            return Measured(setting=setting, failure="no memory")
        noise = (1.0, 1.01, 0.99) if setting == DEFAULT else (0.99, 1.0, 1.01)
        return Measured(setting=setting, rates=tuple(speed * factor for factor in noise))

    return tune(SETTINGS, measure, 2.0)


def test_the_fastest_setting_is_found() -> None:
    asked: list[tuple[str, float, int]] = []
    found = tuned({"slots=64": 14.0, "no drafts": 7.0}, asked)
    assert found.setting == Setting(name="slots=64", slots=64)
    assert found.setting.changed == {"slots": 64}
    assert found.beside_default is not None
    assert found.beside_default.low > 1.3
    rounds = {number: [name for name, _, round_ in asked if round_ == number] for _, _, number in asked}
    assert [len(names) for names in rounds.values()] == [7, 4, 2]
    assert {seconds for _, seconds, number in asked if number == 3} == {8.0}
    assert len(found.measured) == len(SETTINGS)


def test_what_is_not_surely_faster_is_not_worth_being_different_for() -> None:
    found = tuned({"slots=64": 10.05})
    assert found.setting == DEFAULT
    assert "nothing is surely faster; slots=64" in found.why


def test_settings_that_do_not_run_are_never_chosen() -> None:
    assert (
        tuned(dict.fromkeys([setting.name for setting in SETTINGS if setting != DEFAULT], 0.0)).setting == DEFAULT
    )
    found = tuned({"default": 0.0, "slots=16": 11.0})
    assert (found.setting.name, found.why) == ("slots=16", "the default does not run: no memory")
    nothing = tuned(dict.fromkeys([setting.name for setting in SETTINGS], 0.0))
    assert not any(measured.rates for measured in nothing.measured)


@given(st.lists(st.floats(0.1, 1e6), min_size=3, max_size=7))
def test_the_default_stays_to_the_end(speeds: list[float]) -> None:
    measured = [Measured(setting=s, rates=(speed,)) for s, speed in zip(SETTINGS, speeds, strict=False)]
    left = survivors(measured)
    assert left[0] == DEFAULT
    assert 2 <= len(left) < len(measured)
    dropped = [one.mean for one in measured if one.setting not in left]
    kept = [one.mean for one in measured if one.setting in left[1:]]
    assert max(dropped) <= min(kept)


def test_one_core_has_no_half() -> None:
    assert not any(setting.threads for setting in settings_to_try(1, quick=False))
    assert len(settings_to_try(4, quick=True)) == 3


def test_variables_do_not_make_a_fleet_another_than_its_profile_says() -> None:
    kept = {"HOME": "/root", "COPYDESK_INFERENCE_DEVICE": "cuda", "COPYDESK_CACHE_DIR": "/cache"}
    dropped = {"COPYDESK_GATEWAY_CACHE": "memory", "COPYDESK_INFERENCE_SLOTS": "4"}
    assert environment({**kept, **dropped}) == kept
