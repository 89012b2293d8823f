"""The colours of every report, on light and on dark ground, and the colour of each role.

Colours of data are those of Okabe and Ito (2008), which colour-blind readers can tell apart, made
lighter for dark ground.
"""

from __future__ import annotations

from tracekit.model.chart import Role

__all__ = ["DARK", "LIGHT", "colour_name", "fills", "light_only", "style"]

LIGHT = {
    "bg": "#ffffff",
    "fg": "#1b1f24",
    "muted": "#525b66",
    "line": "#d5dbe1",
    "idle": "#e7ebef",
    "wait": "#aeb7c1",
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
    "wait": "#5c6773",
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
_NAMES = {
    Role.COMMUNICATION: "c1",
    Role.MATRIX_PRODUCT: "c2",
    Role.ATTENTION: "c3",
    Role.DEQUANTISATION: "c4",
    Role.COPY: "c5",
    Role.OTHER_COMPUTE: "c6",
    Role.OPAQUE: "c7",
    Role.STEP: "c8",
    Role.WINDOW: "c9",
    Role.HOST: "c10",
    Role.WAIT: "wait",
    Role.IDLE: "idle",
    Role.SERIES_1: "c1",
    Role.SERIES_2: "c2",
    Role.SERIES_3: "c3",
    Role.SERIES_4: "c4",
    Role.SERIES_5: "c5",
    Role.SERIES_6: "c6",
}


def colour_name(role: Role) -> str:
    """Return the name of a role's colour, which is also its class in the style sheet."""
    return _NAMES[role]


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
    names = (name for name in LIGHT if name in _NAMES.values())
    return "".join(f".{n} {{ fill: var(--{n}); background: var(--{n}); }}\n" for n in names)


def light_only(css: str) -> str:
    """Return `css` with every variable replaced by its value on light ground."""
    for name in sorted(LIGHT, key=len, reverse=True):
        css = css.replace(f"var(--{name})", LIGHT[name])
    return css
