"""Settings of which a model profile can say some: what it says counts where no variable says otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from copydesk.common.profile import Profile, ProfileError, read_profile
from copydesk.common.settings import RefusedSettingError, SecretFiles, ServiceSettings

FIELD = "profile"
"""The setting that names the file; a class that derives from `ProfiledSettings` declares it."""


class ProfiledSettings(ServiceSettings):
    """The base of settings with a field `profile`."""

    @classmethod
    def said_by(cls, profile: Profile, path: Path) -> dict[str, Any]:
        """Return what a profile, read from `path`, says of these settings, by the name of the field."""
        raise NotImplementedError

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Put the profile behind arguments, variables and files of secrets."""
        return init_settings, env_settings, SecretFiles(settings_cls), _ProfileSource(settings_cls, cls)


class _ProfileSource(PydanticBaseSettingsSource):
    """Reads the file that the sources before it name, if any."""

    def __init__(self, settings_cls: type[BaseSettings], profiled: type[ProfiledSettings]) -> None:
        super().__init__(settings_cls)
        self._profiled = profiled

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Give nothing: all fields come at once, from the call."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return what the profile says."""
        named = self.current_state.get(FIELD)
        if not named:
            return {}
        path = Path(named)
        try:
            return self._profiled.said_by(read_profile(path), path)
        except ProfileError as error:
            raise RefusedSettingError(FIELD, str(error)) from error
