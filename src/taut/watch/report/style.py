"""How a report looks: light or dark as the reader's machine is set, and on paper."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--sheet:#fff;--ink:#1f2933;--muted:#5f6c7b;--grid:#e4e7eb;
--ok:#0072b2;--bad:#c2410c;--limit:#1f2933;--held:#aab4c0;--plan:#d99100;--run:#0072b2;
--good:#1b7f4d;--panel:#f7f8fa}
@media(prefers-color-scheme:dark){:root{--sheet:#14181d;--ink:#e6eaef;--muted:#9aa7b5;
--grid:#2b333c;--ok:#56b4e9;--bad:#ff8a5c;--limit:#e6eaef;--held:#5b6877;--plan:#e6b455;
--run:#56b4e9;--good:#5cc98f;--panel:#1b2128}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1120px;padding:24px 20px 60px;background:var(--sheet);
color:var(--ink);font:15px/1.5 system-ui,sans-serif}
h1{font-size:24px;margin:0 0 4px}h2{font-size:18px;margin:36px 0 8px}
h3{font-size:14px;margin:0 0 2px;font-weight:600}
p{margin:6px 0;max-width:80ch}p,li{overflow-wrap:anywhere}
.muted,figcaption,small{color:var(--muted)}
figure{margin:10px 0}figcaption{font-size:13px}
table{border-collapse:collapse;margin:10px 0;font-variant-numeric:tabular-nums;font-size:14px}
th,td{padding:4px 12px 4px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--grid)}
td,th{white-space:nowrap}th{font-weight:600;color:var(--muted);font-size:13px}td.n,th.n{text-align:right}
.wide{overflow-x:auto}.lead{font-size:19px;margin:14px 0}
.v{font-weight:600;white-space:nowrap}.v-met{color:var(--good)}
.v-missed,.v-failed,.worse{color:var(--bad)}
.v-at-risk{color:var(--plan)}.better{color:var(--good)}
.grid2{display:grid;
grid-template-columns:repeat(auto-fill,minmax(min(100%,440px),1fr));gap:14px 24px}
.grid2>div{background:var(--panel);padding:10px 12px 6px;border-radius:8px}
ul{padding-left:20px;margin:6px 0}li{margin:2px 0}
details{margin:10px 0}summary{cursor:pointer}
svg{display:block;width:100%;height:auto;font:11px system-ui,sans-serif}
svg text{fill:var(--muted)}svg path{fill:none}
svg .grid{stroke:var(--grid);stroke-width:1}
svg .limit{stroke:var(--limit);stroke-width:1;stroke-dasharray:5 4}
svg .ok{stroke:var(--ok);stroke-width:5;stroke-linecap:round}
svg .bad,svg .flag{stroke:var(--bad);stroke-width:6;stroke-linecap:square}
svg .flag{stroke-width:4}
svg .held{stroke:var(--held);stroke-width:2}
svg .planning{stroke:var(--plan);stroke-width:7}
svg .running{stroke:var(--run);stroke-width:10}
.key i{display:inline-block;width:14px;margin:0 5px 0 14px;vertical-align:middle}
.key .held{background:var(--held);height:2px}.key .planning{background:var(--plan);height:7px}
.key .running{background:var(--run);height:10px}
.key .flag{background:var(--bad);height:6px;width:6px}
@media print{body{max-width:none}.grid2>div,figure,tr{break-inside:avoid}}
"""
