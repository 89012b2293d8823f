"""Reading of a Hugging Face ``config.json``: fields by any of their names, checked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from tracekit.errors import InputError

__all__ = ["Fields"]

_ALIASES = {
    "hidden_size": ("n_embd", "d_model"),
    "num_hidden_layers": ("n_layer", "num_layers", "n_layers"),
    "num_attention_heads": ("n_head", "num_heads", "n_heads"),
    "intermediate_size": ("n_inner", "ffn_dim", "ffn_hidden_size"),
    "num_experts": ("num_local_experts", "n_routed_experts"),
    "num_experts_per_tok": ("num_experts_per_token", "moe_topk"),
}


class Fields:
    """The fields of one configuration.

    Args:
        values: The configuration, or its part about the language model.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self.assumptions: list[str] = []

    @classmethod
    def parse(cls, text: str) -> Fields:
        """Return the fields of a configuration's text.

        Raises:
            InputError: The text is no JSON object.
        """
        try:
            found = json.loads(text)
        except ValueError as error:
            message = f"not a JSON file: {error}"
            raise InputError(message) from None
        if not isinstance(found, dict):
            message = "not a model's config.json: no object"
            raise InputError(message)
        inner = found.get("text_config")
        if not isinstance(inner, dict):
            return cls(found)
        fields = cls({**{k: v for k, v in found.items() if k != "text_config"}, **inner})
        fields.assumptions.append("only the language model of a multimodal one (text_config)")
        return fields

    @property
    def model_type(self) -> str:
        """Family, lower case; "" if the configuration does not say."""
        return str(self._values.get("model_type", "")).lower()

    def raw(self, name: str) -> Any:
        """Return the value of `name` or of one of its aliases; None if there is none."""
        for known in (name, *_ALIASES.get(name, ())):
            if self._values.get(known) is not None:
                return self._values[known]
        return None

    def count(self, name: str, default: int | None = None) -> int:
        """Return a positive whole number; `default` where the field is absent.

        Raises:
            InputError: The field is absent without a default, or no positive whole number.
        """
        value = self.raw(name)
        if value is None and default is not None:
            return default
        if value is None:
            other = _ALIASES.get(name, ())
            also = f" (nor {', '.join(other)})" if other else ""
            message = f"config.json has no {name}{also}"
            raise InputError(message, hint="give the config.json of the model's own folder")
        whole = isinstance(value, int | float) and math.isfinite(value) and value == int(value)
        if isinstance(value, bool) or not whole or value <= 0:
            message = f"config.json: {name} is {value!r}, not a positive whole number"
            raise InputError(message)
        return int(value)

    def optional(self, name: str) -> int | None:
        """Return a positive whole number; None where the field is absent, null or zero."""
        value = self.raw(name)
        return None if value is None or value is False or value == 0 else self.count(name)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a truth value; `default` where the field is absent."""
        value = self.raw(name)
        return default if value is None else bool(value)
