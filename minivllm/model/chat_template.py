"""The chat template of a checkpoint: a Jinja program that lays out a conversation as one prompt.

Templates come with the model and are run as they are, so they run in Jinja's sandbox, in which they
can change nothing and reach nothing. They are given what transformers gives them, since that is
what their authors tried them with.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment


class ChatTemplate:
    """A compiled template. `special_tokens` become variables by name ("bos_token", …).
    `ValueError` if `source` is no Jinja template."""

    def __init__(self, source: str, special_tokens: dict[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda layout: datetime.now().strftime(layout)
        self._special_tokens = special_tokens
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise ValueError(f"the chat template is no valid Jinja ({error}); repair or replace it") from None

    def render(self, messages: list[dict[str, Any]], add_generation_prompt: bool, **variables: Any) -> str:
        """The conversation as text; with `add_generation_prompt`, opened for the model's answer.
        `ValueError` for messages that are none, or that the template refuses."""
        _check_messages(messages)
        given = {"tools": None, "documents": None, **self._special_tokens, **variables}
        try:
            return self._template.render(
                messages=messages, add_generation_prompt=add_generation_prompt, **given
            )
        except (TemplateError, TypeError) as error:
            raise ValueError(f"the model's chat template refuses these messages: {error}") from None


def _check_messages(messages: list[dict[str, Any]]) -> None:
    if not isinstance(messages, list) or not messages:
        raise ValueError(f"messages is {messages!r}; give a list with at least one message")
    for message in messages:
        if not isinstance(message, dict) or "role" not in message or "content" not in message:
            raise ValueError(
                f"message {message!r} is none; each is a dictionary with 'role' and 'content', "
                "e.g. {'role': 'user', 'content': 'Hello'}"
            )


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    """As in Python, where Jinja's own filter would escape <, > and & for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent, **options)


def _raise(message: str) -> None:
    raise TemplateError(message)
