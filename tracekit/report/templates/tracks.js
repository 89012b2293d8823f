// What a timeline draws: rows of boxes and sampled series for a stretch of time.
const BOX = 20, SERIES = 46, GAP = 5, HEADING = 26, NARROW = 640;

/** Prepare a track: ends in ascending order, so that what is visible can be searched. */
function prepared(track) {
  let reach = 0;
  const ends = track.s.map((start, i) => { reach = Math.max(reach, start + track.d[i]); return reach; });
  return { ...track, ends };
}

/** Place headings, tracks and series below each other for a width. */
function layout(data, width) {
  const above = width < NARROW ? 15 : 0;
  const rows = [];
  let y = 4;
  const place = (row, height) => { rows.push({ ...row, y: y + (row.heading ? 0 : above), h: height }); y += height + GAP + (row.heading ? 0 : above); };
  const gpus = [null, ...Object.keys(data.gpus).map(Number)];
  for (const gpu of gpus) {
    const tracks = data.tracks.filter((t) => t.gpu === gpu);
    const series = data.series.filter((s) => s.gpu === gpu);
    if (!tracks.length && !series.length) continue;
    const from = y;
    if (gpu !== null) place({ heading: `GPU ${gpu}  ${data.gpus[gpu]}` }, HEADING - GAP);
    for (const track of tracks) place({ track, gpu, label: track.label }, BOX);
    for (const one of series) place({ series: one, gpu, label: one.label, below: '0–100% of peak' }, SERIES);
    rows.push({ group: gpu, y: from, h: y - from });
  }
  return { rows, height: y + 2, gutter: above ? 0 : 176, above };
}

/** The colours of the page as it is now, light or dark. */
function palette() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(`--${name}`).trim();
  const colours = {};
  const names = ['bg', 'fg', 'muted', 'line', 'panel', 'idle', 'wait', 'edge', ...Array.from({ length: 10 }, (_, i) => `c${i + 1}`)];
  for (const name of names) colours[name] = get(name);
  return colours;
}

function luminance(hex) {
  const full = hex.length === 4 ? hex.replace(/\w/g, '$&$&') : hex;
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(full.slice(i, i + 2), 16) / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

const inkOn = (hex) => (luminance(hex) > 0.18 ? '#111' : '#fff');

function fitted(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  const each = context.measureText('n').width;
  const keep = Math.floor(room / each) - 1;
  return keep < 3 ? '' : `${text.slice(0, keep)}…`;
}

/** Draw the boxes of one track; those that share a pixel are drawn once. */
function drawBoxes(context, row, view, data, colours, chosen) {
  const { track, y, h } = row;
  context.fillStyle = colours.panel;
  context.fillRect(view.left, y, view.width, h);
  let painted = -1;
  for (let i = lowerBound(track.ends, view.from + 1); i < track.s.length && track.s[i] < view.to; i += 1) {
    const right = view.left + view.width;
    const x0 = Math.min(right - 1, Math.max(view.left, view.x(track.s[i])));
    const x1 = Math.min(right, view.x(track.s[i] + track.d[i]));
    if (x1 <= painted && chosen !== i) continue;
    const wide = Math.max(x1 - x0, 1);
    const [kind, name] = data.kinds[track.k[i]];
    const colour = colours[name];
    context.fillStyle = colour;
    context.fillRect(x0, y, wide > 3 ? wide - 0.5 : wide, h);
    painted = Math.max(painted, Math.floor(x0) + 1, x1);
    if (name === 'c7' && wide > 2) { context.strokeStyle = colours.edge; context.strokeRect(x0 + 0.5, y + 0.5, wide - 1.5, h - 1); }
    if (wide > 34) {
      context.fillStyle = inkOn(colour);
      context.fillText(fitted(context, data.names[track.w[i]] || kind, wide - 8), x0 + 4, y + h / 2);
    }
    if (chosen === i) { context.strokeStyle = colours.fg; context.lineWidth = 2; context.strokeRect(x0 - 1, y - 1, wide + 2, h + 2); context.lineWidth = 1; }
  }
}

/** Draw a sampled series as steps, full height being the peak. */
function drawSeries(context, row, view, colours) {
  const { series, y, h } = row;
  const colour = colours[series.label.startsWith('DRAM') ? 'c5' : 'c3'];
  context.fillStyle = colours.panel;
  context.fillRect(view.left, y, view.width, h);
  context.strokeStyle = colours.line;
  context.beginPath();
  context.moveTo(view.left, y + h / 2 + 0.5);
  context.lineTo(view.left + view.width, y + h / 2 + 0.5);
  context.stroke();
  const first = Math.max(0, lowerBound(series.s, view.from) - 1);
  const paint = (values, alpha) => {
    context.globalAlpha = alpha;
    context.fillStyle = colour;
    for (let i = first; i < series.s.length && series.s[i] < view.to; i += 1) {
      const x0 = Math.max(view.left, view.x(series.s[i]));
      const x1 = Math.min(view.left + view.width, view.x(series.s[i] + series.d[i]));
      const tall = values[i] / 1000 * h;
      if (x1 > x0) context.fillRect(x0, y + h - tall, Math.max(x1 - x0, 0.6), tall);
    }
    context.globalAlpha = 1;
  };
  if (series.x) paint(series.x, 0.35);
  paint(series.v, 0.9);
}

/** Shade the boxes of shaded tracks over the rows of their GPU, and worst windows over everything. */
function drawShades(context, plan, view, data, colours) {
  for (const group of plan.rows.filter((r) => 'group' in r)) {
    const track = data.tracks.find((t) => t.shaded && t.gpu === group.group);
    if (!track) continue;
    context.fillStyle = colours.fg;
    context.globalAlpha = 0.07;
    for (let i = lowerBound(track.ends, view.from + 1); i < track.s.length && track.s[i] < view.to; i += 1) {
      const [x0, x1] = [Math.max(view.left, view.x(track.s[i])), Math.min(view.left + view.width, view.x(track.s[i] + track.d[i]))];
      if (x1 - x0 > 1.5) context.fillRect(x0, group.y + HEADING, x1 - x0, group.h - HEADING);
    }
    context.globalAlpha = 1;
  }
  for (const mark of data.marks) {
    const [x0, x1] = [view.x(mark.s), view.x(mark.s + mark.d)];
    if (x1 < view.left || x0 > view.left + view.width) continue;
    context.strokeStyle = colours[mark.level === 'critical' ? 'c4' : 'c2'];
    context.setLineDash([5, 4]);
    for (const x of [x0, x1]) {
      if (x < view.left || x > view.left + view.width) continue;
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, plan.height);
      context.stroke();
    }
    context.setLineDash([]);
  }
}

/** Draw all rows for what `view` shows; `chosen` is [row, item] or null. */
function drawBody(context, plan, view, data, colours, chosen) {
  context.clearRect(0, 0, view.left + view.width + 20, plan.height);
  context.textBaseline = 'middle';
  plan.rows.forEach((row, i) => {
    context.font = '12px system-ui, sans-serif';
    if (row.track) drawBoxes(context, row, view, data, colours, chosen && chosen[0] === i ? chosen[1] : -1);
    if (row.series) drawSeries(context, row, view, colours);
  });
  drawShades(context, plan, view, data, colours);
  for (const row of plan.rows) {
    if ('group' in row) continue;
    context.font = row.heading ? '600 13px system-ui, sans-serif' : '12px system-ui, sans-serif';
    context.fillStyle = row.heading ? colours.fg : colours.muted;
    if (row.heading) context.fillText(row.heading, 8, row.y + row.h / 2 + 2);
    else if (plan.above) context.fillText(row.below ? `${row.label}, ${row.below}` : row.label, 6, row.y - 7);
    else {
      context.fillText(fitted(context, row.label, plan.gutter - 14), 8, row.y + (row.below ? 15 : row.h / 2));
      if (row.below) context.fillText(row.below, 8, row.y + 31);
    }
  }
}

/** Draw the strip of the whole recording with the part that is shown, and the ruler below it. */
function drawHead(context, plan, view, data, colours, total) {
  const strip = 18;
  context.clearRect(0, 0, total, 46);
  const across = (ns) => view.left + ns / data.span * view.width;
  context.fillStyle = colours.idle;
  context.fillRect(view.left, 3, view.width, strip);
  for (const track of data.tracks.filter((t) => t.lane !== '' && t.lane !== 'steps')) {
    let painted = -1;
    for (let i = 0; i < track.s.length; i += 1) {
      const x0 = across(track.s[i]), x1 = across(track.s[i] + track.d[i]);
      if (x1 <= painted) continue;
      context.fillStyle = colours[data.kinds[track.k[i]][1]];
      context.fillRect(x0, track.lane === 'communication' ? 3 : 3 + strip / 2, Math.max(0.7, x1 - x0), strip / 2);
      painted = Math.max(x1, x0 + 0.5);
    }
  }
  for (const mark of data.marks) {
    context.fillStyle = colours.fg;
    const x = across(mark.s + mark.d / 2);
    context.beginPath();
    context.moveTo(x - 4, 0); context.lineTo(x + 4, 0); context.lineTo(x, 6);
    context.fill();
  }
  const [a, b] = [across(view.from), across(view.to)];
  context.globalAlpha = 0.65;
  context.fillStyle = colours.bg;
  context.fillRect(view.left, 3, a - view.left, strip);
  context.fillRect(b, 3, view.left + view.width - b, strip);
  context.globalAlpha = 1;
  context.strokeStyle = colours.fg;
  context.strokeRect(a + 0.5, 2.5, Math.max(3, b - a - 1), strip + 1);
  drawRuler(context, view, data, colours, strip + 8);
  if (plan.gutter) { context.fillStyle = colours.muted; context.textAlign = 'left'; context.fillText('whole recording', 8, 13); context.fillText('session time', 8, strip + 18); }
}

function drawRuler(context, view, data, colours, y) {
  const step = tickStep(view.to - view.from, view.width / 110);
  context.font = '11.5px system-ui, sans-serif';
  context.textBaseline = 'middle';
  context.fillStyle = colours.fg;
  context.strokeStyle = colours.muted;
  const first = Math.ceil((view.from + data.origin) / step) * step;
  for (let at = first; at <= view.to + data.origin; at += step) {
    const x = view.x(at - data.origin);
    context.beginPath();
    context.moveTo(x + 0.5, y); context.lineTo(x + 0.5, y + 5);
    context.stroke();
    context.textAlign = x > view.left + view.width - 40 ? 'right' : x < view.left + 30 ? 'left' : 'center';
    context.fillText(moment(at, step), x, y + 12);
  }
  context.textAlign = 'left';
}
