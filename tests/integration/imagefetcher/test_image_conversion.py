"""Images converted in a real docker-registry, by the command, and compared by other programs than our own."""

from __future__ import annotations

import hashlib
import json
import os
import ssl
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard
from typer.testing import CliRunner

from copydesk.cli.main import app
from copydesk.imagefetcher.index import ARTIFACT_TYPE, decode
from copydesk.imagefetcher.trace import FileRead, Trace, encode_trace
from tests.fixtures.certificates import self_signed
from tests.fixtures.docker_registry import (
    PASSWORD,
    USER,
    DockerRegistry,
    docker_registry,
    password_registry,
    registry_binary,
    required_program,
    running,
)
from tests.fixtures.oci_image import (
    INDEX,
    MANIFEST,
    BuiltImage,
    Item,
    build,
    digest_of,
    directory,
    file,
    hard_link,
    layer,
    push,
    push_blob,
    push_index,
    symlink,
)
from tests.fixtures.token_service import TokenService, token_registry

__all__ = ["docker_registry", "password_registry"]

NOISE = os.urandom(600_000)
BASE = layer(
    directory("usr/bin", uid=1, gid=2),
    file("usr/bin/tool", NOISE, mode=0o755, xattrs={"user.note": b"\xff\0x"}),
    hard_link("usr/bin/alias", "usr/bin/tool", mode=0o755),
    file("etc/gone"),
    symlink("bin", "usr/bin"),
    Item("dev/null", tarfile.CHRTYPE, device=(1, 3), mode=0o666),
)
TOP = layer(file("etc/.wh.gone"), file("bin/new", b"new"), file("copy", NOISE), file("zeros", bytes(1_000_000)))


def copydesk(*arguments: str, folder: Path | None = None) -> tuple[int, Any, str]:
    """Do what `copydesk image` does, knowing only the passwords in `folder`; return exit code, JSON and errors."""
    environment = {"DOCKER_CONFIG": str(folder or "/nonexistent"), "COLUMNS": "200"}
    done = CliRunner().invoke(app, ["image", *arguments, "--json"], env=environment)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, json.loads(done.stdout) if done.stdout else None, done.stderr


def converted(registry: DockerRegistry, name: str, *arguments: str, folder: Path | None = None) -> list[Any]:
    code, report, errors = copydesk("convert", registry.reference(name), "--plain-http", *arguments, folder=folder)
    assert code == 0, errors
    return list(report["platforms"])


def artifact_of(registry: DockerRegistry, repository: str, digest: str) -> dict[str, Any]:
    """The artifact's manifest, found as the specification says for a registry without the API."""
    url = f"http://{registry.host}/v2/{repository}/manifests"
    tag = digest.replace(":", "-")
    listed = httpx.get(f"{url}/{tag}", headers={"Accept": INDEX}).json()
    (entry,) = [entry for entry in listed["manifests"] if entry["artifactType"] == ARTIFACT_TYPE]
    fetched = httpx.get(f"{url}/{entry['digest']}", headers={"Accept": MANIFEST})
    assert digest_of(fetched.content) == entry["digest"]
    manifest: dict[str, Any] = fetched.json()
    return manifest


def test_a_converted_image_is_found_by_its_subject_and_is_what_its_index_says(
    docker_registry: DockerRegistry,
) -> None:
    digest = push(docker_registry.host, "app", "v1", build([BASE, TOP]))
    (report,) = converted(docker_registry, "app:v1")
    manifest = artifact_of(docker_registry, "app", digest)
    assert manifest["subject"]["digest"] == digest == report["image"]
    index_blob, metadata, data = (docker_registry.blob_file(entry["digest"]) for entry in manifest["layers"])
    index = decode(index_blob.read_bytes())
    assert str(index.platform) == "linux/amd64"
    raw = data.read_bytes()
    assert digest_of(raw) == index.data.digest
    for sector in index.data.sectors:
        packed = raw[sector.offset : sector.offset + sector.length]
        assert digest_of(packed) == sector.digest
        assert digest_of(zstandard.ZstdDecompressor().decompress(packed)) == sector.plain_digest
    assert digest_of(zstandard.ZstdDecompressor().decompress(metadata.read_bytes())) == index.metadata.plain_digest
    # The noise is in two files and one hard link, and stored once.
    assert len(NOISE) < index.data.size < 1.1 * len(NOISE)
    code, verified, _ = copydesk("verify", docker_registry.reference("app:v1"), "--plain-http")
    assert (code, verified["equal"]) == (0, True)
    assert verified["platforms"][0]["bytes_compared"] >= len(NOISE)


def test_the_same_image_gives_the_same_digests_in_another_registry_place_and_time(
    docker_registry: DockerRegistry, tmp_path: Path
) -> None:
    image = build([BASE, TOP])
    push(docker_registry.host, "one", "v1", image)
    push(docker_registry.host, "two/deep", "v2", image)
    (tmp_path / "elsewhere").mkdir()
    (first,) = converted(docker_registry, "one:v1")
    (second,) = converted(docker_registry, "two/deep:v2", "--work-dir", str(tmp_path / "elsewhere"))
    assert first == second
    assert first["is_new"]
    assert not list((tmp_path / "elsewhere").iterdir())
    (again,) = converted(docker_registry, "one:v1")
    assert again == {**first, "is_new": False}


def test_with_a_trace_what_is_read_comes_first_and_the_newer_artifact_counts(
    docker_registry: DockerRegistry, tmp_path: Path
) -> None:
    big = os.urandom(9 << 20)
    digest = push(docker_registry.host, "app", "v1", build([layer(file("big", big), file("a"), file("z", NOISE))]))
    (before,) = converted(docker_registry, "app:v1")
    assert before["prefetch"] == 0
    trace = tmp_path / "trace.json"
    reads = (FileRead("z", 0, len(NOISE), 0.1), FileRead("big", 5 << 20, 100_000, 0.2))
    trace.write_bytes(encode_trace(Trace(1, reads)))
    (after,) = converted(docker_registry, "app:v1", "--trace", str(trace))
    assert after["artifact"] != before["artifact"]
    assert after["prefetch"] == 1
    assert len(NOISE) + 100_000 <= after["hot_size"] <= len(NOISE) + 100_000 + 3 * 4096
    manifest = artifact_of(docker_registry, "app", digest)
    index = decode(docker_registry.blob_file(manifest["layers"][0]["digest"]).read_bytes())
    assert index.prefetch == (0,)
    sector = index.data.sectors[0]
    raw = docker_registry.blob_file(index.data.digest).read_bytes()[: sector.length]
    plain = zstandard.ZstdDecompressor().decompress(raw)
    assert plain.startswith(NOISE)
    assert big[5 << 20 : (5 << 20) + 100_000] in plain
    # What is hot is nearly all that is fetched for it.
    assert sector.length <= 1.5 * (len(NOISE) + 100_000)
    assert copydesk("verify", docker_registry.reference("app:v1"), "--plain-http")[0] == 0
    (back,) = converted(docker_registry, "app:v1")
    code, shown, _ = copydesk("inspect", docker_registry.reference("app:v1"), "--plain-http")
    assert code == 0
    assert shown["platforms"][0]["artifact"]["digest"] == back["artifact"]


def test_each_platform_of_an_index_is_converted(docker_registry: DockerRegistry) -> None:
    images = {"amd64": build([BASE]), "arm64": build([TOP], "arm64", packing="zstd")}
    push_index(docker_registry.host, "multi", "v1", images)
    reports = converted(docker_registry, "multi:v1")
    assert [report["image"] for report in reports] == [image.digest for image in images.values()]
    (only,) = converted(docker_registry, "multi:v1", "--platform", "linux/arm64")
    assert only == {**reports[1], "is_new": False}
    code, _, errors = copydesk(
        "convert", docker_registry.reference("multi:v1"), "--plain-http", "--platform", "linux/s390x"
    )
    assert code == 1
    assert "linux/amd64, linux/arm64" in errors


def test_a_copy_takes_the_artifact_along_and_sends_nothing_twice(
    docker_registry: DockerRegistry, tmp_path: Path
) -> None:
    images = {"amd64": build([BASE]), "arm64": build([TOP], "arm64")}
    digest = push_index(docker_registry.host, "multi", "v1", images)
    reports = converted(docker_registry, "multi:v1")
    source = docker_registry.reference("multi:v1")
    code, within, _ = copydesk("copy", source, docker_registry.reference("other/multi:v1"), "--plain-http")
    assert (code, within["sent"], within["artifacts"], within["digest"]) == (0, 0, 2, digest)
    for other in running(DockerRegistry(registry_binary(), tmp_path / "other")):
        code, away, _ = copydesk("copy", source, other.reference("app:v2"), "--plain-http")
        assert code == 0
        assert away["sent"] > len(NOISE)
        code, verified, errors = copydesk("verify", other.reference("app:v2"), "--plain-http")
        assert code == 0, errors
        assert [one["artifact"] for one in verified["platforms"]] == [report["artifact"] for report in reports]
        again = copydesk("copy", source, other.reference("app:v3"), "--plain-http")[1]
        assert again["sent"] == 0


def test_converting_elsewhere_takes_the_image_there_first(docker_registry: DockerRegistry) -> None:
    digest = push(docker_registry.host, "app", "v1", build([BASE]))
    converted(docker_registry, "app:v1", "--to", docker_registry.reference("lazy/app:v2"))
    assert artifact_of(docker_registry, "lazy/app", digest)["subject"]["digest"] == digest
    url = f"http://{docker_registry.host}/v2/app/manifests/{digest.replace(':', '-')}"
    assert httpx.get(url).status_code == 404


def test_skopeo_reads_the_image_as_before_and_the_artifact_as_one(
    docker_registry: DockerRegistry, tmp_path: Path
) -> None:
    skopeo = required_program("skopeo", "skopeo")
    image = build([BASE, TOP])
    push(docker_registry.host, "app", "v1", image)
    (report,) = converted(docker_registry, "app:v1")
    name = docker_registry.reference("app")
    for reference, target in ((f"{name}:v1", "image"), (f"{name}@{report['artifact']}", "artifact")):
        copy = [skopeo, "--insecure-policy", "copy", "--src-tls-verify=false", f"docker://{reference}"]
        done = subprocess.run([*copy, f"dir:{tmp_path / target}"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "image" / "manifest.json").read_bytes() == image.manifest


def corrupt(registry: DockerRegistry, digest: str) -> None:
    path = registry.blob_file(digest)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize("part", [0, 1, 2])
def test_verify_notices_a_flipped_bit_in_any_part_of_an_artifact(
    docker_registry: DockerRegistry, part: int
) -> None:
    digest = push(docker_registry.host, "app", "v1", build([BASE]))
    converted(docker_registry, "app:v1")
    corrupt(docker_registry, artifact_of(docker_registry, "app", digest)["layers"][part]["digest"])
    code, _, errors = copydesk("verify", docker_registry.reference("app:v1"), "--plain-http")
    assert code == 1
    assert "sent sha256:" in errors


def test_an_artifact_that_is_listed_and_not_there_is_told_and_made_anew(docker_registry: DockerRegistry) -> None:
    digest = push(docker_registry.host, "app", "v1", build([TOP]))
    entry = {"mediaType": MANIFEST, "digest": "sha256:" + "0" * 64, "size": 9, "artifactType": ARTIFACT_TYPE}
    raw = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).encode()
    # The registry would not take such a list; it is what is left when an artifact is deleted.
    sound = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": []}).encode()
    url = f"http://{docker_registry.host}/v2/app/manifests/{digest.replace(':', '-')}"
    httpx.put(url, content=sound, headers={"Content-Type": INDEX}).raise_for_status()
    link = docker_registry.storage / "docker/registry/v2/repositories/app/_manifests"
    for path in (
        link / "revisions/sha256" / digest_of(raw)[7:] / "link",
        link / "tags" / digest.replace(":", "-") / "current/link",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(digest_of(raw))
    docker_registry.blob_file(digest_of(raw)).parent.mkdir(parents=True)
    docker_registry.blob_file(digest_of(raw)).write_bytes(raw)
    code, _, errors = copydesk("verify", docker_registry.reference("app:v1"), "--plain-http")
    assert code == 1
    assert "0000" in errors
    converted(docker_registry, "app:v1")
    assert copydesk("verify", docker_registry.reference("app:v1"), "--plain-http")[0] == 0


def test_verify_tells_an_artifact_of_other_files_from_that_of_the_image(docker_registry: DockerRegistry) -> None:
    """An artifact sound in itself, whose index names this image, but made of another's files."""
    digest = push(docker_registry.host, "app", "v1", build([BASE]))
    other = push(
        docker_registry.host, "app", "v2", build([layer(directory("usr/bin"), file("usr/bin/tool", b"evil"))])
    )
    converted(docker_registry, "app:v2")
    manifest = artifact_of(docker_registry, "app", other)
    raw = (
        docker_registry.blob_file(manifest["layers"][0]["digest"])
        .read_bytes()
        .replace(other.encode(), digest.encode())
    )
    text = json.dumps(manifest).replace(other, digest).replace(manifest["layers"][0]["digest"], digest_of(raw))
    forged = text.encode()
    with httpx.Client(base_url=f"http://{docker_registry.host}") as http:
        push_blob(http, "app", raw)
        headers = {"Content-Type": MANIFEST}
        http.put(f"/v2/app/manifests/{digest_of(forged)}", content=forged, headers=headers).raise_for_status()
        entry = {
            "mediaType": MANIFEST,
            "digest": digest_of(forged),
            "size": len(forged),
            "artifactType": ARTIFACT_TYPE,
        }
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}
        headers = {"Content-Type": INDEX}
        path = f"/v2/app/manifests/{digest.replace(':', '-')}"
        http.put(path, content=json.dumps(index).encode(), headers=headers).raise_for_status()
    code, report, _ = copydesk("verify", docker_registry.reference("app:v1"), "--plain-http")
    assert code == 1
    found = {(one["path"], one["what"]) for one in report["platforms"][0]["differences"]}
    assert ("/usr/bin/alias", "name") in found
    assert ("/usr/bin/tool", "size") in found


def test_a_password_is_taken_from_dockers_configuration(password_registry: DockerRegistry, tmp_path: Path) -> None:
    image = build([BASE])
    push(password_registry.host, "app", "v1", image, auth=(USER, PASSWORD))
    code, _, errors = copydesk("convert", password_registry.reference("app:v1"), "--plain-http", folder=tmp_path)
    assert code == 1
    assert "docker login" in errors
    wrong = {"username": USER, "password": "wrong"}
    (tmp_path / "config.json").write_text(json.dumps({"auths": {password_registry.host: wrong}}))
    code, _, errors = copydesk("convert", password_registry.reference("app:v1"), "--plain-http", folder=tmp_path)
    assert code == 1
    assert "refuses the user's name or password" in errors
    entry = {"username": USER, "password": PASSWORD}
    (tmp_path / "config.json").write_text(json.dumps({"auths": {password_registry.host: entry}}))
    converted(password_registry, "app:v1", folder=tmp_path)
    assert copydesk("verify", password_registry.reference("app:v1"), "--plain-http", folder=tmp_path)[0] == 0


@pytest.mark.parametrize("stale", [0, 1])
def test_tokens_are_fetched_for_what_is_done_and_a_refused_one_is_replaced(tmp_path: Path, stale: int) -> None:
    service = TokenService()
    with token_registry(tmp_path, service) as (registry, server):
        push(registry.host, "app", "v1", build([BASE]), auth=_TokenAuth(service, server.host))
        entry = {"username": USER, "password": PASSWORD}
        (tmp_path / "config.json").write_text(json.dumps({"auths": {registry.host: entry}}))
        service.given, service.stale = 0, stale
        code, _, errors = copydesk("convert", registry.reference("app:v1"), "--plain-http", folder=tmp_path)
        if stale:
            # A token that is refused the moment it was given is not asked for again: the two would go on for ever.
            assert code == 1
            assert "does not let this user" in errors
            return
        assert code == 0, errors
        scopes = {asked.path.rpartition("scope=")[2] for asked in server.asked}
        assert {"repository%3Aapp%3Apull", "repository%3Aapp%3Apull%2Cpush"} <= scopes
        assert copydesk("verify", registry.reference("app:v1"), "--plain-http", folder=tmp_path)[0] == 0


class _TokenAuth(httpx.Auth):
    """How the test itself logs in."""

    def __init__(self, service: TokenService, host: str) -> None:
        self._service = service
        self._url = f"http://{host}/token?service=registry.test&scope=repository:app:pull,push"

    def auth_flow(self, request: httpx.Request) -> Any:
        token = httpx.get(self._url, auth=(USER, PASSWORD)).json()["token"]
        request.headers["Authorization"] = f"Bearer {token}"
        yield request


def test_a_registry_with_a_certificate_of_its_own_authority_is_trusted_when_told(tmp_path: Path) -> None:
    private, certificate = self_signed()
    (tmp_path / "key.pem").write_bytes(private)
    (tmp_path / "cert.pem").write_bytes(certificate)
    tls = {"certificate": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")}
    for registry in running(DockerRegistry(registry_binary(), tmp_path / "registry", http={"tls": tls})):
        base = f"https://{registry.host}"
        push(
            registry.host,
            "app",
            "v1",
            build([TOP]),
            base=base,
            verify=ssl.create_default_context(cafile=str(tmp_path / "cert.pem")),
        )
        name = registry.reference("app:v1")
        code, _, errors = copydesk("convert", name, "--ca", str(tmp_path / "cert.pem"))
        assert code == 0, errors
        code, _, errors = copydesk("inspect", name)
        assert code == 1
        assert "certificate" in errors.lower()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("convert", "Not/A/Name"), "lower case"),
        (("convert", "registry.example:5000/app:v1", "--plain-http"), "not on this machine"),
        (("convert", "127.0.0.1:1/app:v1", "--plain-http", "--trace", "/nonexistent"), "/nonexistent"),
        (("copy", "127.0.0.1:1/app:v1", "a b"), "names no image"),
        (("inspect", "127.0.0.1:1/app:v1", "--ca", "/nonexistent"), "/nonexistent"),
    ],
)
def test_bad_input_is_told_by_exit_code_2(arguments: tuple[str, ...], said: str) -> None:
    code, report, errors = copydesk(*arguments)
    assert (code, report) == (2, None)
    assert said in errors


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (build([layer(file("f"), file("f/below"))]), "no directory"),
        (build([b"this is no archive" * 100]), "tar archive"),
        (build([TOP]), ""),
    ],
)
def test_a_layer_that_cannot_be_unpacked_is_told(
    docker_registry: DockerRegistry, image: BuiltImage, said: str
) -> None:
    push(docker_registry.host, "app", "v1", image)
    code, _, errors = copydesk("convert", docker_registry.reference("app:v1"), "--plain-http")
    assert code == (1 if said else 0)
    assert said in errors


def test_a_layer_that_is_not_what_the_configuration_says_is_refused(docker_registry: DockerRegistry) -> None:
    good, other = build([BASE]), build([TOP])
    manifest = json.loads(good.manifest)
    manifest["layers"] = json.loads(other.manifest)["layers"]
    image = BuiltImage(json.dumps(manifest).encode(), (good.blobs[0], other.blobs[1]))
    push(docker_registry.host, "app", "v1", image)
    code, _, errors = copydesk("convert", docker_registry.reference("app:v1"), "--plain-http")
    assert code == 1
    assert "configuration says" in errors


@pytest.mark.slow
def test_memory_does_not_grow_with_the_image(docker_registry: DockerRegistry) -> None:
    """A file of 192 MiB is converted by a process that never has as much."""
    block = hashlib.sha256(b"x").digest() * 2048
    content = b"".join(number.to_bytes(8, "big") + block[8:] for number in range(192 * 16))
    push(docker_registry.host, "app", "v1", build([layer(file("big", content))], packing=""))
    script = (
        "import sys\n"
        "from copydesk.cli.main import app\n"
        "try: app(sys.argv[1:])\n"
        "finally: print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0], file=sys.stderr)\n"
    )
    command = [
        sys.executable,
        "-c",
        script,
        "image",
        "convert",
        docker_registry.reference("app:v1"),
        "--plain-http",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stderr.split()[-1]) < 150 << 10, "kilobytes"
