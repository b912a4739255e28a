"""Where tests find an API server, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.kube import BINARIES, kube_assets


def lay(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch(mode=0o755)
    return folder


def test_the_folder_that_the_environment_names_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(lay(tmp_path / "assets", *BINARIES)))
    assert kube_assets() == tmp_path / "assets"


def test_what_was_built_before_is_found_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    built = lay(tmp_path / "copydesk" / "kube-assets" / "1.20.2", *BINARIES)
    assert kube_assets() == built


@pytest.mark.parametrize(("required", "outcome"), [("0", pytest.skip.Exception), ("1", pytest.fail.Exception)])
def test_without_one_tests_say_how_to_get_it_and_fail_where_nothing_may_be_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, required: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(lay(tmp_path / "assets", "etcd")))
    monkeypatch.setenv("COPYDESK_REQUIRE_ALL", required)
    with pytest.raises(outcome, match=r"tests/kube/build-assets\.sh"):
        kube_assets()
