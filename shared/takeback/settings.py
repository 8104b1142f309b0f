"""What every service is told by its environment (contract.md, Settings); a service adds its own in its settings.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from takeback.auth import Verifier

PREFIX = "TAKEBACK_"


class ServiceSettings(BaseSettings):
    """Settings by name ``TAKEBACK_…``. Build them with `of`, in a composition root only."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    postgres_url: str
    nats_url: str
    redis_url: str = ""
    keys_dir: Path = Path("keys")
    sweep_seconds: float = 5.0
    oidc_issuer: str | None = None
    oidc_audience: str | None = None
    oidc_jwks_url: str | None = None
    oidc_person: str | None = None
    """The claim that makes an issuer's token without our ``typ`` a person's: ``auth_time``, ``idtyp=user``. None: none does."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        """The settings in *environ*; raises pydantic's ValidationError that names what is missing or wrong."""
        known = {
            name.removeprefix(PREFIX).lower(): value
            for name, value in environ.items()
            if name.startswith(PREFIX) and value != ""
        }
        return cls(**known)  # type: ignore[arg-type]  # pydantic parses each

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  the library names and hands over all four
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what `of` was handed counts: three services in one process have three environments."""
        assert isinstance(env_settings, EnvSettingsSource)
        return (init_settings,)

    def verifier(self) -> Verifier:
        """Whose tokens count: an OIDC issuer's where one is set, else those of the installation's own key."""
        if self.oidc_issuer:
            jwks = self.oidc_jwks_url or self.oidc_issuer.rstrip("/") + "/.well-known/jwks.json"
            return Verifier(
                jwks_url=jwks, issuer=self.oidc_issuer, audience=self.oidc_audience, person=self.oidc_person
            )
        public = self.keys_dir / "token_public.pem"
        return Verifier(token_key=public if public.exists() else self.keys_dir / "token.pem")
