// Puts the page together: theme, timeline, evidence and tables, each drawn when it is first seen.
const data = JSON.parse($('#data').textContent);
const root = document.documentElement;

function stored(value) {
  // Storage may be switched off for files; the page then follows the system.
  try {
    if (value) localStorage.setItem('tracekit-theme', value);
    return localStorage.getItem('tracekit-theme');
  } catch {
    return null;
  }
}

const isDark = () => (root.dataset.theme
  ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches);

let timeline = null;

function applyTheme(theme) {
  if (theme === 'dark' || theme === 'light') root.dataset.theme = theme;
  $('#theme').setAttribute('aria-label', isDark() ? 'Switch to light' : 'Switch to dark');
  if (timeline) timeline.recolour();
}

$('#theme').addEventListener('click', () => {
  const theme = isDark() ? 'light' : 'dark';
  stored(theme);
  applyTheme(theme);
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => applyTheme(null));
applyTheme(stored());

if (data.timeline) {
  $('#timeline').hidden = false;
  timeline = createTimeline($('#timeline-view'), data.timeline);
} else {
  document.querySelectorAll('[data-needs="timeline"], .show').forEach((node) => node.remove());
}
const go = timeline ? (start, end) => timeline.show(start, end) : null;

/** Run `draw` once, when `details` is first opened. */
function whenOpened(details, draw) {
  let drawn = false;
  const act = () => { if (details.open && !drawn) { drawn = true; draw(); } };
  details.addEventListener('toggle', act);
  act();
}

document.querySelectorAll('details.finding').forEach((details) => {
  const own = data.evidence[Number(details.dataset.finding)];
  whenOpened(details, () => details.querySelectorAll('.evidence').forEach((into) => {
    const e = own[Number(into.dataset.evidence)];
    drawTable(into, data.tables[e.table], { title: e.title, only: e.rows, picked: e.columns, total: e.total, go });
  }));
});
document.querySelectorAll('details.frame').forEach((details) => {
  whenOpened(details, () => drawTable($('.body', details), data.tables[Number(details.dataset.table)], { go }));
});
document.querySelectorAll('.show').forEach((button) => button.addEventListener('click', () => {
  const mark = data.timeline.marks.find((m) => m.finding === Number(button.dataset.mark));
  timeline.show(mark.s + data.timeline.origin, mark.s + mark.d + data.timeline.origin, mark.title);
}));

/** Open what an address points at: #finding-2 leads to an open finding. */
function openTarget() {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (target && target.tagName === 'DETAILS') target.open = true;
}
addEventListener('hashchange', openTarget);
openTarget();
