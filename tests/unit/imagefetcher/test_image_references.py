"""Names of images, as docker reads them."""

from __future__ import annotations

import pytest

from copydesk.imagefetcher.registry.errors import BadReferenceError
from copydesk.imagefetcher.registry.reference import Reference, is_loopback

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("text", "whole", "api_host"),
    [
        ("python", "docker.io/library/python:latest", "registry-1.docker.io"),
        ("python:3.11-slim", "docker.io/library/python:3.11-slim", "registry-1.docker.io"),
        ("team/app", "docker.io/team/app:latest", "registry-1.docker.io"),
        ("index.docker.io/team/app", "docker.io/team/app:latest", "registry-1.docker.io"),
        ("localhost/app:v1", "localhost/app:v1", "localhost"),
        ("localhost:5000/app", "localhost:5000/app:latest", "localhost:5000"),
        ("registry.example/a/b/c:v1", "registry.example/a/b/c:v1", "registry.example"),
        ("[::1]:5000/app:v1", "[::1]:5000/app:v1", "[::1]:5000"),
        (f"app@{DIGEST}", f"docker.io/library/app@{DIGEST}", "registry-1.docker.io"),
        (f"r.example:1/app:v1@{DIGEST}", f"r.example:1/app:v1@{DIGEST}", "r.example:1"),
        ("a__b/c-d--e.f", "docker.io/a__b/c-d--e.f:latest", "registry-1.docker.io"),
    ],
)
def test_what_a_name_leaves_out_is_filled_in(text: str, whole: str, api_host: str) -> None:
    reference = Reference.parse(text)
    assert str(reference) == whole
    assert reference.api_host == api_host
    assert Reference.parse(whole) == reference


@pytest.mark.parametrize(
    "text",
    [
        "",
        "App",
        "app:",
        "app:ta g",
        "app@sha256:12",
        "app@md5:" + "0" * 32,
        "r.example/../etc",
        "r.example//app",
        "r.example/app/",
        "r.example:99999/app",
        "https://r.example/app",
        "app:" + "t" * 129,
        "a/" * 130 + "b",
        "r.example/app?x=1",
        "app\n",
        "user@r.example/app",
    ],
)
def test_what_names_no_image_is_refused(text: str) -> None:
    with pytest.raises(BadReferenceError):
        Reference.parse(text)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("localhost:5000", True),
        ("127.0.0.1:5000", True),
        ("127.9.9.9", True),
        ("[::1]:5000", True),
        ("::1", True),
        ("10.0.0.1:5000", False),
        ("localhost.example", False),
        ("127.0.0.1.example:80", False),
        ("registry", False),
    ],
)
def test_only_this_machine_is_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
