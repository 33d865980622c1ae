"""Prompt registries, where applications look up their prompts by name and label. A named version of a space becomes a
version of a prompt, and a prompt is read as a playbook. Plug-ins (entry point `practicum.registries`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from practicum.core import playbook
from practicum.core.context import Context
from practicum.core.errors import UsageError
from practicum.core.plugins import Group, implements
from practicum.core.visible import visible_to_model


class Registry(Protocol):
    """Prompt registry: a module or an object. The address and the keys come from the environment variables of the
    registry's own client.

    Both functions raise PracticumError with a code `registry.…`, which says whether the registry does not answer,
    refuses the key, refuses the request, or does not have the prompt.
    """

    def push(self, prompt: str, text: str, label: str, message: str) -> int:
        """Move a label to the version of a prompt that has this text, and return the number of this version. If no
        version has the text, first register the text as a new version, with a message about its origin."""

    def pull(self, prompt: str, version: str | None) -> str:
        """Return the text of a version of a prompt: exactly the text that was pushed. `version` is a number or a label;
        None is the newest version."""


REGISTRIES: Group[Registry] = Group(
    "practicum.registries", "registry", implements(Registry), unknown="registry.unknown"
)


@dataclass(frozen=True, slots=True)
class Pushed:
    """Version of a prompt that a label was moved to."""

    registry: str
    prompt: str
    version: int


def push_context(context: Context, label: str, target: str, folder: Path) -> Pushed:
    """Register a context as a version of a prompt, unless a version has the same text, and move the label to this
    version.

    `target` is REGISTRY or REGISTRY:PROMPT; the default prompt is the name of the space's folder. Raises
    PracticumError if the registry does not accept the text, the prompt or the label.
    """
    registry, _, prompt = target.partition(":")
    space = folder.resolve().name
    message = f"version {context.version} of the space {space}, by practicum"
    prompt = _checked(prompt or space)
    return Pushed(registry, prompt, REGISTRIES.load(registry).push(prompt, prompt_text(context), label, message))


def prompt_text(context: Context) -> str:
    """Return a context as the text of a prompt: the markdown of an export, as practicum's agents see texts, without
    counters and with hidden characters escaped. Equal texts are one version of a prompt, and counters change more often
    than texts."""
    return visible_to_model(
        playbook.export(Context(), "markdown", [replace(entry, helpful=0, harmful=0) for entry in context])
    )


def is_prompt(source: Path) -> bool:
    """Whether a source is the address of a prompt, REGISTRY:PROMPT or REGISTRY:PROMPT@VERSION."""
    registry, colon, prompt = str(source).partition(":")
    return bool(colon and prompt) and registry in REGISTRIES.registered()


def load_prompt(source: Path) -> Context:
    """Read a prompt (see `is_prompt`) as a playbook file with the same text is read (see `playbook.load`)."""
    registry, _, address = str(source).partition(":")
    prompt, _, version = address.partition("@")
    return playbook.parse(REGISTRIES.load(registry).pull(_checked(prompt), version or None), source)


def _checked(prompt: str) -> str:
    """Return the name of a prompt. Raises UsageError for a name that cannot be sent."""
    if not prompt or not prompt.isprintable():
        raise UsageError("registry.refused", f"{prompt!a:.200} is not the name of a prompt: use letters and digits")
    return prompt
