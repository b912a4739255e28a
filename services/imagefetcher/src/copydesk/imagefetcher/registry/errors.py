"""What can go wrong between here and a registry."""

from __future__ import annotations

from copydesk.imagefetcher.errors import ImageError


class BadReferenceError(ImageError):
    """A name that is none of an image; `text` is the name, `reason` what is wrong with it."""

    hint = "Name an image as in registry.example:5000/team/app:v1, or by digest as in app@sha256:..."

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"{text[:300]!r} names no image: {reason}")
        self.text = text
        self.reason = reason


class CredentialsError(ImageError):
    """A docker configuration or credential helper that cannot be used; `source` says which, `reason` why."""

    hint = "Log in again with docker login, or name another folder in DOCKER_CONFIG."

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"credentials: {source}: {reason}")
        self.source = source
        self.reason = reason


class RegistryError(ImageError):
    """Anything that goes wrong with a registry; `host` names it."""

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(f"registry {host}: {reason}")
        self.host = host
        self.reason = reason


class RegistryUnreachableError(RegistryError):
    """A registry that cannot be reached, or did not answer in time, after every retry."""

    hint = "Is the name right, and the registry up? A registry without TLS on this machine needs --plain-http."


class CertificateRefusedError(RegistryUnreachableError):
    """A registry whose certificate nobody here vouches for, or that is another's."""

    hint = "Name the certificates that it is signed with by --ca FILE, or have this machine trust them."


class PlainHttpRefusedError(RegistryError):
    """A registry without TLS on another machine: passwords and images would cross the network in the clear."""

    hint = "Give the registry a certificate, or say --plain-http-host HOST if the network between is your own."


class AuthenticationError(RegistryError):
    """A registry that wants to know who asks, or lets others in but not this one."""

    hint = "Log in with docker login (or name the folder of the right config.json in DOCKER_CONFIG)."


class NotFoundError(RegistryError):
    """Something that the registry does not have; `what` names it."""

    hint = "Check the name and the tag. Some registries say this also of what one may not see: try docker login."

    def __init__(self, host: str, what: str) -> None:
        super().__init__(host, f"has no {what}")
        self.what = what


class RefusedError(RegistryError):
    """An answer that is none of the above: `status` is HTTP's, `message` what the registry says."""

    def __init__(self, host: str, request: str, status: int, message: str) -> None:
        super().__init__(host, f"{request} answered {status}{': ' if message else ''}{message}")
        self.status = status
        self.message = message


class DigestMismatchError(RegistryError):
    """Content that is not what its digest says: damaged on the way, or there."""

    hint = (
        "Try again; if it stays so, the registry's storage is damaged, or something between alters what it sends."
    )

    def __init__(self, host: str, expected: str, found: str) -> None:
        super().__init__(host, f"sent {found} for {expected}")
        self.expected = expected
        self.found = found


class AnswerError(RegistryError):
    """An answer that breaks the protocol: a wrong range, a body that is too long, a manifest that is none."""
