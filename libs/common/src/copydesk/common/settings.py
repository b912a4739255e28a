"""Settings from environment variables, checked once, at start.

A service declares one class of them::

    class EdsSettings(ServiceSettings, env_prefix="COPYDESK_EDS_"):
        debounce_ms: int = Field(50, ge=0, description="Milliseconds to wait for more changes; 50 because ...")

and calls `load_settings(EdsSettings)` first thing in its main.

A secret, which is a field of type `SecretStr`, may stand in a file instead, as containers get theirs: the variable
`COPYDESK_<SERVICE>_<KEY>_FILE` names it.
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import SecretBytes, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

EXIT_BAD_SETTINGS = 2

FILE_SUFFIX = "_FILE"
"""What is added to the variable of a secret for the one that names a file with it."""

LARGEST_SECRET = 65_536
"""Bytes of a file beyond which it holds no secret, but was named by mistake."""

_INDENT = "    "
_SECRET_WORDS = ("token", "secret", "password", "key")


class ServiceSettings(BaseSettings):
    """The base of every service's settings: frozen, read from the environment, and of secrets from files."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", env_ignore_empty=True, validate_default=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read arguments, variables, and the files that variables name."""
        return init_settings, env_settings, SecretFiles(settings_cls)


S = TypeVar("S", bound=ServiceSettings)


class RefusedSettingError(SettingsError):
    """A setting whose value is one, but leads to nothing usable: `field` is its name, `problem` what is wrong."""

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}")


class SecretFiles(PydanticBaseSettingsSource):
    """Reads the secrets that stand in files; one newline at the end of a file is none of the secret."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Give nothing: all fields come at once, from the call."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return what stands in the files; raise `RefusedSettingError` for a file or a variable too many."""
        environ = {name.upper(): value for name, value in os.environ.items() if value}
        found = {}
        for field in secret_fields(self.settings_cls):
            path = environ.get(variable_name(self.settings_cls, field) + FILE_SUFFIX)
            if path is None:
                continue
            if variable_name(self.settings_cls, field) in environ:
                other = variable_name(self.settings_cls, field) + FILE_SUFFIX
                raise RefusedSettingError(field, f"is set, and so is {other}: expected one of the two")
            if field not in self.current_state:  # else an argument says it
                found[field] = _read_secret(field, Path(path))
        return found


def _read_secret(field: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_SECRET + 1)
        secret = content.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise RefusedSettingError(field + FILE_SUFFIX, f"{path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise RefusedSettingError(field + FILE_SUFFIX, f"{path}: expected text in UTF-8") from None
    if not secret:
        raise RefusedSettingError(field + FILE_SUFFIX, f"{path}: the file is empty")
    if len(content) > LARGEST_SECRET:
        problem = f"{path}: larger than {LARGEST_SECRET} bytes, which no secret is"
        raise RefusedSettingError(field + FILE_SUFFIX, problem)
    return secret


def load_settings(cls: type[S], *, warn: bool = True, **overrides: object) -> S:
    """Read and check the settings; `overrides` (by field name) win over the environment.

    A variable that has the service's prefix but is none of its settings is misspelt, most likely: unless `warn` is
    false (in a process whose parent has said so already), a line on standard error says that it is ignored.

    If any value is bad, say for each which variable it is, what it holds and what was expected, on standard error,
    and raise `SystemExit(2)`. Values of secrets are not shown.
    """
    for line in unknown_settings(cls, os.environ) if warn else ():
        print(line, file=sys.stderr)
    try:
        return cls(**overrides)
    except ValidationError as error:
        complaints = [_complaint(cls, detail) for detail in error.errors(include_url=False)]
    except RefusedSettingError as error:
        complaints = [f"{variable_name(cls, error.field)}: {error.problem}"]
    except SettingsError as error:
        complaints = [f"{cls.__name__}: {error}"]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    raise SystemExit(EXIT_BAD_SETTINGS)


def take_no_arguments(cls: type[ServiceSettings], arguments: Sequence[str], *, program: str, purpose: str) -> None:
    """Answer `--help` with all settings, and refuse any other argument: services are configured by variables only.

    Raises `SystemExit`, with 0 for the help and 2 for what is refused.
    """
    parser = argparse.ArgumentParser(
        prog=program,
        description=purpose,
        epilog=settings_in_words(cls),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _, others = parser.parse_known_args(arguments)
    if others:
        parser.error(f"{others[0]} is not taken: settings are environment variables, which --help lists")


def settings_in_words(cls: type[ServiceSettings]) -> str:
    """Return all settings for people to read: variable, default, and what it is."""
    lines = ["Settings are environment variables; what stands in brackets is the default:"]
    for name, info in own_fields_first(cls):
        said = info.description or ""
        if holds_secret(info):
            said += f" ({variable_name(cls, name)}{FILE_SUFFIX} may name a file with it.)"
        meaning = textwrap.fill(said, 100, initial_indent=_INDENT, subsequent_indent=_INDENT)
        lines += ["", f"{variable_name(cls, name)} [{_default(info)}]", meaning]
    return "\n".join(lines).replace("%", "%%")


def variable_name(cls: type[BaseSettings], field: str) -> str:
    """Return the environment variable that `field` is read from."""
    return f"{cls.model_config.get('env_prefix', '')}{field}".upper()


def own_fields_first(cls: type[BaseSettings]) -> Iterator[tuple[str, FieldInfo]]:
    """Yield all fields as people should read them: a service's own ahead of those that it shares with others."""
    own = inspect.get_annotations(cls)
    for wanted in (True, False):
        yield from ((name, info) for name, info in cls.model_fields.items() if (name in own) is wanted)


def secret_fields(cls: type[BaseSettings]) -> list[str]:
    """Return the names of the fields that hold secrets, which may stand in files."""
    return [name for name, info in cls.model_fields.items() if holds_secret(info)]


def holds_secret(info: FieldInfo) -> bool:
    """Say whether the value of a field is a secret, by its type."""
    types = (info.annotation, *get_args(info.annotation))
    return any(kind in (SecretStr, SecretBytes) for kind in types)


def refuse_setting(cls: type[ServiceSettings], field: str, problem: str) -> int:
    """Say on standard error what is wrong with a setting that only its use could show; return the exit code."""
    print(f"{variable_name(cls, field)}: {problem}", file=sys.stderr)
    return EXIT_BAD_SETTINGS


def unknown_settings(cls: type[ServiceSettings], environ: Mapping[str, str]) -> list[str]:
    """Return a line for each variable that is set and starts with the service's prefix, but is no setting of it.

    Values are not shown: what was meant may be a secret. A class without a prefix knows no strangers.
    """
    prefix = str(cls.model_config.get("env_prefix", "")).upper()
    if not prefix:
        return []
    keys = [variable_name(cls, field).removeprefix(prefix) for field in cls.model_fields]
    keys += [f"{field.upper()}{FILE_SUFFIX}" for field in secret_fields(cls)]
    ours = sorted(name for name, value in environ.items() if value and name.upper().startswith(prefix))
    return [_unknown(name, prefix, keys) for name in ours if name.upper().removeprefix(prefix) not in keys]


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "needed"
    value = info.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, SecretStr | SecretBytes):
        value = value.get_secret_value()
    return "none" if value in (None, "", b"") else str(value.value if isinstance(value, Enum) else value)


def _unknown(variable: str, prefix: str, keys: list[str]) -> str:
    closest = difflib.get_close_matches(variable.upper().removeprefix(prefix), keys, n=1)
    advice = f"; did you mean {prefix}{closest[0]}?" if closest else ""
    return f"{variable} is ignored, since there is no such setting (unknown_setting){advice}"


def _complaint(cls: type[ServiceSettings], detail: ErrorDetails) -> str:
    said = detail["msg"].removeprefix("Value error, ")  # pydantic's, before what our own checks say
    if not detail["loc"]:
        return f"{cls.__name__}: {said}"
    field = str(detail["loc"][0])
    variable = variable_name(cls, field)
    info = cls.model_fields.get(field)
    meaning = f" ({info.description})" if info is not None and info.description else ""
    if detail["type"] == "missing":
        return f"{variable} is not set, and it must be{meaning}"
    shown = "(hidden)" if _is_secret(field, info) else repr(detail["input"])
    return f"{variable}={shown}: {said}{meaning}"


def _is_secret(field: str, info: FieldInfo | None) -> bool:
    if any(word in field.lower().split("_") for word in _SECRET_WORDS):
        return True
    return info is not None and holds_secret(info)
