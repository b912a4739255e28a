"""What a fleet that is started to be measured takes over from its surroundings."""

from __future__ import annotations

from copydesk.cli.onboarding.trial_fleet import environment


def test_nothing_has_a_fleet_be_another_than_its_profile_says() -> None:
    around = {
        "PATH": "/bin",
        "COPYDESK_INFERENCE_ENGINE": "vllm",
        "COPYDESK_INFERENCE_SLOTS": "3",
        "COPYDESK_INFERENCE_DEVICE": "cuda",
        "COPYDESK_GATEWAY_CACHE_MB": "64",
    }
    assert environment(around) == {"PATH": "/bin", "COPYDESK_INFERENCE_DEVICE": "cuda"}
