"""The look of all pictures in pages: colours for a light and a dark page, and the classes that drawings name. Pure.

The console, `windfall report` and the pictures of the laboratories share it.
"""

from __future__ import annotations

LIGHT = (
    "--back:#fff;--ink:#1d2530;--soft:#566070;--line:#dce1e8;--main:#2563a8;--good:#2e7d54;--bad:#b53224;"
    "--odd:#7c4aa5;--wait:#8a6500;--idle:#c9b26b"
)
DARK = (
    "--back:#14181d;--ink:#e6eaef;--soft:#a3aebb;--line:#333c47;--main:#7db4ee;--good:#66c491;--bad:#f28b7f;"
    "--odd:#c09ae6;--wait:#e3bb4a;--idle:#6b6136"
)
PALETTE = f":root{{color-scheme:light dark;{LIGHT}}}@media(prefers-color-scheme:dark){{:root{{{DARK}}}}}"
"""For the head of a page."""
STYLE = """
div.chart{overflow-x:auto;background:linear-gradient(90deg,var(--back) 40%,transparent) 0/3em 100% no-repeat local,
linear-gradient(270deg,var(--back) 40%,transparent) 100%/3em 100% no-repeat local,
linear-gradient(90deg,var(--line),transparent) 0/1.2em 100% no-repeat,
linear-gradient(270deg,var(--line),transparent) 100%/1.2em 100% no-repeat}
.chart svg{display:block;width:100%;min-width:560px;height:auto}
.chart text{font:13px system-ui,sans-serif;fill:var(--soft)}.chart .name{fill:var(--ink)}
.chart .grid{stroke:var(--line);stroke-width:1}.chart .limit{stroke:var(--bad);stroke-width:1.5;stroke-dasharray:5 4}
.chart .limit-name{fill:var(--bad)}.chart .curve{fill:none;stroke:var(--main);stroke-width:2}
.chart .area{fill:var(--main);opacity:.13}.done{fill:var(--good)}.failed{fill:var(--bad)}.lost{fill:var(--odd)}
.boot{fill:var(--wait)}.hibernated{fill:var(--soft)}.impossible{fill:var(--bad);opacity:.12}.dot{fill:var(--main)}
.fan{fill:var(--main);opacity:.22}.middle{stroke:var(--main);stroke-width:1.5;stroke-dasharray:4 3}
.against{stroke:var(--odd);stroke-width:1.6}.key.against{background:var(--odd)}.key.used{background:var(--main)}
.mark{stroke:var(--odd);stroke-width:1.5;stroke-dasharray:2 3}.chart .mark-name{fill:var(--odd)}
.idle{fill:var(--idle)}.key.idle{background:var(--idle)}.running{fill:none;stroke:var(--good);stroke-width:1.2}
.key.running{border:1px solid var(--good)}
.spot{fill:#2f8f9d}.on-demand{fill:var(--main)}.cancelled{fill:var(--line)}
.key.done{background:var(--good)}.key.spot{background:#2f8f9d}.key.failed{background:var(--bad)}.key.lost{background:var(--odd)}
.key.boot{background:var(--wait)}.key.hibernated{background:var(--soft)}
.key.on-demand{background:var(--main)}.key.cancelled{background:var(--line)}
.hue0{fill:#3b7dd8}.hue1{fill:#3f9a68}.hue2{fill:#d08a1c}.hue3{fill:#9a62c7}.hue4{fill:#c8514a}.hue5{fill:#3f9aa8}
.hue6{fill:#8a8f3a}.hue7{fill:#b8638f}.key.hue0{background:#3b7dd8}.key.hue1{background:#3f9a68}.key.hue2{background:#d08a1c}
.key.hue3{background:#9a62c7}.key.hue4{background:#c8514a}.key.hue5{background:#3f9aa8}.key.hue6{background:#8a8f3a}
.key.hue7{background:#b8638f}
.is-done{fill:var(--good)}.key.is-done{background:var(--good)}.is-running{fill:var(--main)}.key.is-running{background:var(--main)}.is-ready{fill:var(--wait)}.key.is-ready{background:var(--wait)}
.is-failed{fill:var(--bad)}.key.is-failed{background:var(--bad)}.is-blocked{fill:var(--odd)}.key.is-blocked{background:var(--odd)}.is-waiting{fill:var(--soft)}.key.is-waiting{background:var(--soft)}.is-cancelled{fill:var(--line)}.key.is-cancelled{background:var(--line)}
.line{fill:none;stroke-width:1.9}.dashed{stroke-dasharray:6 4}.inksoft{stroke:var(--soft)}.soft-fill{fill:var(--soft)}
.ink0{stroke:#3b7dd8}.ink1{stroke:#3f9a68}.ink2{stroke:#d08a1c}.ink3{stroke:#9a62c7}.ink4{stroke:#c8514a}.ink5{stroke:#3f9aa8}.ink6{stroke:#8a8f3a}.ink7{stroke:#b8638f}
.ground{fill:var(--back)}.chart .title{font-weight:600}
.edge{stroke:var(--soft);stroke-opacity:.6;stroke-width:1.2}
.key{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin:0 .35em 0 1em}
""".strip()
