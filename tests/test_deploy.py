"""The files of deploy/: they can be read, and use only commands and options of the package."""

from __future__ import annotations

import re
import shlex
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import yaml
from helpers import run_command

from practicum.serve.proxy import MOST_BODY
from practicum.serve.server import DRAIN, NOTICE
from practicum.serve.spans import PATIENCE

DEPLOY = Path(__file__).parents[1] / "deploy"
CLOSING = 2
"""Seconds for the work after the stop: the check in progress, and the rows that are still to be written."""


def compose() -> dict[str, Any]:
    read = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    assert isinstance(read, dict)
    return read


def unit() -> ConfigParser:
    # Names may come twice, and case matters.
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "practicum.service", encoding="utf-8")
    return parser


def dockerfile() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = (line.strip() for line in text.splitlines())
    return [tuple(line.split(" ", 1)) for line in lines if line and not line.startswith("#")]  # type: ignore[misc]


def in_image(instruction: str) -> list[str]:
    return [rest for name, rest in dockerfile() if name == instruction]


def test_each_extra_of_the_image_exists() -> None:
    import tomllib

    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extras,) = (rest.removeprefix("EXTRAS=").split(",") for rest in in_image("ARG"))
    assert {*extras} <= {*project["optional-dependencies"]}
    assert "serve" in extras


def test_all_flags_that_are_used_exist(tmp_path: Path) -> None:
    options = {*re.findall(r"--[a-z][a-z-]+", run_command(["serve", "--help-all"], tmp_path).out)}
    assert "--upstream" in options
    commands = [
        compose()["services"]["practicum"]["command"],
        shlex.split(unit()["Service"]["ExecStart"])[1:],
        yaml.safe_load(in_image("CMD")[-1]),
    ]
    for command in commands:
        assert command[0] == "serve"
        flags = {part for part in command if part.startswith("--")}
        assert "--upstream" in flags
        assert flags <= options


def test_the_image_holds_the_package_alone_and_does_not_run_as_root() -> None:
    assert in_image("USER") == ["practicum"]
    assert in_image("HEALTHCHECK")
    copied = [part for rest in in_image("COPY") for part in rest.split()[:-1] if not part.startswith("--from")]
    for name in copied:
        assert name.startswith("/opt/") or (DEPLOY.parent / name).exists()
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignored
    assert {f"!{name}" for name in copied if not name.startswith("/")} == {one for one in ignored if one[:1] == "!"}


def test_secrets_stand_in_no_file() -> None:
    services = compose()["services"]
    for service in services.values():
        for name, value in service.get("environment", {}).items():
            if re.search("PASSWORD|KEY", name):
                assert str(value).startswith("${"), name
    assert not re.search("PASSWORD|_KEY", " ".join(in_image("ENV")))
    assert not re.search("PASSWORD|_KEY", unit()["Service"]["Environment"])


def test_a_stop_has_the_time_that_it_takes() -> None:
    least = NOTICE + DRAIN + PATIENCE + CLOSING
    assert least <= 30
    assert int(compose()["services"]["practicum"]["stop_grace_period"].removesuffix("s")) >= least
    assert int(unit()["Service"]["TimeoutStopSec"]) >= least


def test_only_the_proxy_can_be_reached_from_outside() -> None:
    services = compose()["services"]
    assert [name for name, service in services.items() if "ports" in service] == ["proxy"]
    # Otherwise anybody could write who he is.
    assert services["practicum"]["environment"]["FORWARDED_ALLOW_IPS"] == "*"
    volumes = {mount.split(":")[0] for service in services.values() for mount in service.get("volumes", ())}
    assert {name for name in volumes if not name.startswith(".")} == {*compose()["volumes"]}
    assert all((DEPLOY / name).exists() for name in volumes if name.startswith("."))


def test_proxies_pass_bodies_of_the_size_that_the_service_accepts() -> None:
    megabytes = MOST_BODY // 2**20
    assert f"client_max_body_size {megabytes}m;" in (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    # Caddy's MB is 10^6 bytes, and its MiB is 2^20 bytes.
    assert f"max_size {megabytes}MiB" in (DEPLOY / "Caddyfile").read_text(encoding="utf-8")
