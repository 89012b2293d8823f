// The timeline: zoom and move by wheel, drag, pinch, keys and buttons; boxes say what they are.
const SHORTEST = 200;
const HELP = [['+', 'zoom in'], ['−', 'zoom out'], ['← →', 'move'], ['↑ ↓', 'choose a track'], [', .', 'box before, after'], ['0', 'everything']];

/** Build the timeline into `into`; returns show(start, end), in session ns. */
function createTimeline(into, raw) {
  const data = { ...raw, tracks: raw.tracks.map(prepared) };
  const state = { from: 0, to: data.span, row: 0, item: -1, plan: null, colours: null, waiting: false };
  const head = make('canvas', { className: 'tl-head', 'aria-hidden': 'true' });
  const body = make('canvas', { className: 'tl-body', 'aria-hidden': 'true' });
  const tip = make('div', { className: 'tl-tip', hidden: true });
  const scroll = make('div', {
    className: 'tl-scroll', tabIndex: 0, role: 'application', 'aria-label':
      'Timeline of device work. Plus and minus zoom, arrows move, up and down choose a track, comma and point a box, zero shows everything.',
  }, head, body, tip);
  const said = make('p', { className: 'tl-said', role: 'status', 'aria-live': 'polite' }, 'Choose a box to read what it is.');
  const range = make('span', { className: 'range' });
  const button = (text, label, act) => {
    const node = make('button', { type: 'button', 'aria-label': label, title: label }, text);
    node.addEventListener('click', act);
    return node;
  };
  const tools = make('div', { className: 'tl-tools' },
    button('+', 'Zoom in', () => zoom(0.5)), button('−', 'Zoom out', () => zoom(2)),
    button('←', 'Earlier', () => move(-0.3)), button('→', 'Later', () => move(0.3)),
    button('All', 'Show everything', () => look(0, data.span)));
  data.marks.slice(0, 3).forEach((mark, i) => tools.append(
    button(`Worst window ${data.marks.length > 1 ? i + 1 : ''}`.trim(), mark.title, () => around(mark.s, mark.s + mark.d, mark.title))));
  tools.append(range);
  const legend = make('ul', { className: 'legend' }, ...data.legend.map(([label, colour]) =>
    make('li', {}, make('span', { className: `key ${colour}`, 'aria-hidden': 'true' }), label)));
  const help = make('p', { className: 'tl-help' }, 'Click, then the wheel zooms (or Ctrl and wheel). Keys: ');
  HELP.forEach(([key, what]) => help.append(make('kbd', {}, key), ` ${what}  `));
  into.append(make('div', { className: 'tl' }, tools, scroll, make('div', { className: 'tl-foot' }, said, legend, help)));

  const width = () => scroll.clientWidth;
  function view() {
    const left = state.plan.gutter;
    const wide = Math.max(50, width() - left - 8);
    const scale = wide / (state.to - state.from);
    return { left, width: wide, from: state.from, to: state.to, x: (ns) => left + (ns - state.from) * scale, ns: (x) => state.from + (x - left) / scale };
  }

  function sized(canvas, height) {
    const ratio = window.devicePixelRatio || 1;
    const [w, h] = [Math.round(width() * ratio), Math.round(height * ratio)];
    if (canvas.width !== w || canvas.height !== h) {
      canvas.width = w; canvas.height = h;
      canvas.style.height = `${height}px`;
    }
    const context = canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    return context;
  }

  function draw() {
    state.waiting = false;
    if (!width()) return;
    state.plan = layout(data, width());
    state.colours = state.colours || palette();
    const seen = view();
    drawHead(sized(head, 46), state.plan, seen, data, state.colours, width());
    drawBody(sized(body, state.plan.height), state.plan, seen, data, state.colours, [state.row, state.item]);
    range.textContent = `${duration(state.to - state.from)} of ${duration(data.span)}`;
    scroll.dataset.from = Math.round(state.from);
    scroll.dataset.to = Math.round(state.to);
  }

  function later() {
    if (!state.waiting) { state.waiting = true; requestAnimationFrame(draw); }
  }

  function look(from, to) {
    const length = Math.min(data.span, Math.max(SHORTEST, to - from));
    state.from = Math.max(0, Math.min(from, data.span - length));
    state.to = state.from + length;
    later();
  }

  function zoom(factor, at = (state.from + state.to) / 2) {
    look(at - (at - state.from) * factor, at + (state.to - at) * factor);
  }

  function move(share) {
    const by = (state.to - state.from) * share;
    look(state.from + by, state.to + by);
  }

  function around(start, end, words) {
    const margin = Math.max(SHORTEST, (end - start) * 0.25);
    look(start - margin, end + margin);
    said.textContent = words || `From ${moment(start + data.origin, 1e3)} for ${duration(end - start)}.`;
  }

  function describe(row, i) {
    const { track } = row;
    const kind = data.kinds[track.k[i]][0];
    const name = data.names[track.w[i]] || kind;
    const n = track.n ? track.n[i] : 1;
    const where = `${track.gpu === null ? '' : `GPU ${track.gpu}, `}${track.label}`;
    const merged = n > 1 ? `; ${n} pieces that run ${duration(track.b[i])} together, the longest is named` : '';
    const about = name === kind ? name : `${name} (${kind})`;
    return `${about}: ${duration(track.d[i])} from ${moment(track.s[i] + data.origin, 1e3)}; ${where}${merged}.`;
  }

  function found(x, y) {
    const at = state.plan.rows.findIndex((r) => !r.heading && !('group' in r) && y >= r.y && y <= r.y + r.h);
    const row = state.plan.rows[at];
    if (!row) return null;
    const ns = view().ns(x);
    const slack = (state.to - state.from) / width() * 1.5;
    if (row.series) {
      const i = lowerBound(row.series.s, ns) - 1;
      if (i < 0 || ns > row.series.s[i] + row.series.d[i]) return null;
      return { at, row, i, text: `${row.series.label}: ${row.series.v[i] / 10}% of peak at ${moment(ns + data.origin, 1e3)}` };
    }
    const i = lowerBound(row.track.ends, ns - slack);
    if (i >= row.track.s.length || row.track.s[i] > ns + slack) return null;
    return { at, row, i, text: describe(row, i) };
  }

  function choose(row, item) {
    state.row = row; state.item = item;
    const { track } = state.plan.rows[row];
    said.textContent = describe(state.plan.rows[row], item);
    const [start, end] = [track.s[item], track.s[item] + track.d[item]];
    if (end < state.from || start > state.to) look(start - (state.to - state.from) / 2, start + (state.to - state.from) / 2);
    later();
  }

  function step(by) {
    const row = state.plan.rows[state.row];
    if (!row || !row.track) return pick(1);
    const visible = state.item < 0 ? lowerBound(row.track.ends, state.from + 1) - (by > 0 ? 1 : 0) : state.item;
    const next = visible + by;
    if (next >= 0 && next < row.track.s.length) choose(state.row, next);
  }

  function pick(by) {
    const { rows } = state.plan;
    for (let i = state.row + by; i >= 0 && i < rows.length; i += by) {
      if (!rows[i].track) continue;
      const item = Math.min(lowerBound(rows[i].track.ends, state.from + 1), rows[i].track.s.length - 1);
      choose(i, item);
      return;
    }
  }

  const keys = {
    '+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2), ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2),
    ArrowUp: () => pick(-1), ArrowDown: () => pick(1), '.': () => step(1), ',': () => step(-1), 0: () => look(0, data.span), Home: () => look(0, data.span),
  };
  scroll.addEventListener('keydown', (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  scroll.addEventListener('wheel', (event) => {
    const engaged = event.ctrlKey || document.activeElement === scroll;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      move(event.deltaX / width());
    } else if (engaged) {
      event.preventDefault();
      zoom(Math.exp(event.deltaY * 0.0022), view().ns(event.clientX - scroll.getBoundingClientRect().left));
    }
  }, { passive: false });

  pointers(body, (dx) => { const by = dx * (state.to - state.from) / view().width; look(state.from - by, state.to - by); },
    (factor, x) => zoom(factor, view().ns(x)),
    (x, y) => { const hit = found(x, y); if (hit && hit.row.track) choose(hit.at, hit.i); else if (hit) said.textContent = hit.text; });
  pointers(head, (dx) => { const by = dx * data.span / view().width; look(state.from + by, state.to + by); }, () => {},
    (x) => { const at = (x - view().left) / view().width * data.span; const half = (state.to - state.from) / 2; look(at - half, at + half); });
  body.addEventListener('dblclick', (event) => zoom(0.4, view().ns(event.offsetX)));
  body.addEventListener('pointermove', (event) => {
    const hit = event.buttons ? null : found(event.offsetX, event.offsetY);
    tip.hidden = !hit;
    if (!hit) return;
    tip.textContent = hit.text;
    const box = scroll.getBoundingClientRect();
    const x = event.clientX - box.left;
    tip.style.left = `${Math.max(4, Math.min(x + 14, box.width - tip.offsetWidth - 6))}px`;
    tip.style.top = `${event.clientY - box.top + scroll.scrollTop + 18}px`;
  });
  body.addEventListener('pointerleave', () => { tip.hidden = true; });
  new ResizeObserver(later).observe(scroll);
  draw();
  return {
    recolour: () => { state.colours = null; later(); },
    show: (start, end, words) => {
      around(start - data.origin, end - data.origin, words);
      into.scrollIntoView({ block: 'start', behavior: 'auto' });
      scroll.focus({ preventScroll: true });
    },
  };
}

/** Report drags (by pixels), pinches (factor, x) and clicks (x, y) on a canvas. */
function pointers(canvas, onDrag, onPinch, onClick) {
  const down = new Map();
  let moved = 0, apart = 0;
  const spread = () => { const [a, b] = [...down.values()]; return Math.max(20, Math.abs(a.x - b.x)); };
  canvas.addEventListener('pointerdown', (event) => {
    down.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    canvas.setPointerCapture(event.pointerId);
    moved = 0;
    if (down.size === 2) apart = spread();
  });
  canvas.addEventListener('pointermove', (event) => {
    const last = down.get(event.pointerId);
    if (!last) return;
    const dx = event.offsetX - last.x;
    down.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    moved += Math.abs(dx);
    if (down.size === 1 && moved > 3) { canvas.classList.add('dragging'); onDrag(dx); }
    if (down.size === 2) {
      const now = spread();
      const [a, b] = [...down.values()];
      onPinch(apart / now, (a.x + b.x) / 2);
      apart = now;
    }
  });
  const release = (event) => {
    const last = down.get(event.pointerId);
    down.delete(event.pointerId);
    canvas.classList.remove('dragging');
    if (last && event.type === 'pointerup' && moved <= 3) onClick(last.x, last.y);
  };
  canvas.addEventListener('pointerup', release);
  canvas.addEventListener('pointercancel', release);
}
