"""The colours of every report, on light and on dark ground, and the colour of each role.

Colours of data are those of Okabe and Ito (2008), which colour-blind readers can tell apart, made
lighter for dark ground.
"""

from __future__ import annotations

from tracekit.model.chart import Role

__all__ = ["DARK", "LIGHT", "NUMBERS", "colour_class", "fills", "light_only", "style"]

LIGHT = {
    "bg": "#ffffff",
    "fg": "#1b1f24",
    "muted": "#525b66",
    "line": "#d5dbe1",
    "idle": "#e7ebef",
    "c1": "#0072b2",
    "c2": "#e69f00",
    "c3": "#cc79a7",
    "c4": "#d55e00",
    "c5": "#009e73",
    "c6": "#7d8894",
    "c7": "#f0e442",
    "c8": "#56b4e9",
    "c9": "#3b4148",
    "c10": "#8a63b8",
}
"""Names of colours to their values on light ground; text is ``fg`` and ``muted`` on ``bg``."""
DARK = {
    "bg": "#0f1317",
    "fg": "#e7eaee",
    "muted": "#a3adb8",
    "line": "#2c343d",
    "idle": "#262d35",
    "c1": "#3d9fe0",
    "c2": "#e69f00",
    "c3": "#d68fb6",
    "c4": "#ea7420",
    "c5": "#1fb58c",
    "c6": "#8f9aa6",
    "c7": "#f0e442",
    "c8": "#9bd6f7",
    "c9": "#c9d1d9",
    "c10": "#b394dd",
}
"""The same names on dark ground."""
NUMBERS = {
    Role.COMMUNICATION: 1,
    Role.MATRIX_PRODUCT: 2,
    Role.ATTENTION: 3,
    Role.DEQUANTISATION: 4,
    Role.COPY: 5,
    Role.OTHER_COMPUTE: 6,
    Role.OPAQUE: 7,
    Role.STEP: 8,
    Role.WINDOW: 9,
    Role.HOST: 10,
    **{role: n for n, role in enumerate((r for r in Role if r.name.startswith("SERIES")), 1)},
}
"""Role to the number of its colour; `Role.WAIT` and `Role.IDLE` are the colour ``idle``."""


def colour_class(role: Role) -> str:
    """Return the name of a role's colour, which is also its class in the style sheet."""
    return f"c{NUMBERS[role]}" if role in NUMBERS else "idle"


def style() -> str:
    """Return both schemes as CSS variables; ``data-theme`` of the root outdoes the system's."""
    light, dark = (
        "".join(f" --{name}: {value};" for name, value in colours.items())
        for colours in (LIGHT, DARK)
    )
    return (
        f":root {{{light} }}\n"
        f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{{dark} }} }}\n'
        f':root[data-theme="dark"] {{{dark} color-scheme: dark; }}\n'
        ':root[data-theme="light"] { color-scheme: light; }\n'
    )


def fills() -> str:
    """Return a class for every colour of data, filled with it, as CSS."""
    names = (name for name in LIGHT if name == "idle" or name[1:].isdigit())
    return "".join(f".{n} {{ fill: var(--{n}); background: var(--{n}); }}\n" for n in names)


def light_only(css: str) -> str:
    """Return `css` with every variable replaced by its value on light ground."""
    for name in sorted(LIGHT, key=len, reverse=True):
        css = css.replace(f"var(--{name})", LIGHT[name])
    return css
