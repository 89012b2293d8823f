// Tables that sort, filter and turn pages: only the rows of one page are in the document.
const PAGE_ROWS = 25;
const LONGEST_ROW = 9;
const CONDITION = /^(.+?)(<=|>=|<|>|=)(.+)$/;
const squeezed = (text) => text.toLowerCase().replace(/[\s_]/g, '');

/** Turn what was typed into a test of a row: words to find, or conditions such as length>50. */
function filterOf(typed, columns) {
  const tests = typed.trim().split(/\s+/).filter(Boolean).map((word) => {
    const [, name, sign, wanted] = word.match(CONDITION) || [];
    const key = name && squeezed(name);
    const column = name && (columns.find((c) => squeezed(c.h) === key)
      || columns.find((c) => squeezed(c.h).startsWith(key)));
    if (!column) {
      const needle = word.toLowerCase();
      return (row) => columns.some((c) => cellText(c, row).toLowerCase().includes(needle));
    }
    const number = Number(wanted);
    return (row) => {
      const value = plain(column, row);
      if (value === null) return false;
      if (sign === '=') {
        return isText(column) ? value.toLowerCase() === wanted.toLowerCase() : value === number;
      }
      if (sign === '<') return value < number;
      if (sign === '>') return value > number;
      return sign === '<=' ? value <= number : value >= number;
    };
  });
  return (row) => tests.every((test) => test(row));
}

/** Return `rows` in the order of a column, what was not measured last. */
function sorted(rows, column, descending) {
  const sign = descending ? -1 : 1;
  const values = new Map(rows.map((row) => [row, plain(column, row)]));
  return [...rows].sort((a, b) => {
    const [x, y] = [values.get(a), values.get(b)];
    if (x === null || y === null) return (x === null) - (y === null) || a - b;
    return (x < y ? -sign : x > y ? sign : 0) || a - b;
  });
}

function cell(column, row) {
  const value = column.v[row];
  const text = cellText(column, row);
  const td = make('td', { className: isText(column) ? 'text' : 'num' });
  if (value === null) {
    td.classList.add('na');
    td.title = 'not measured';
  }
  if (isText(column) && text.length > 30) td.title = text;
  const bounds = value === null || isText(column) ? '' : interval(column, row);
  if (bounds) td.append(scaled(value, column), make('span', { className: 'interval' }, ` ${bounds}`));
  else td.append(text);
  if (column.bar && value !== null) {
    td.classList.add('bar');
    td.style.setProperty('--w', `${Math.max(0, Math.min(100, value / column.f))}%`);
  }
  return td;
}

/** Draw the only row of a wide table as one line a column, with what the column means. */
function drawRow(into, table, columns, row, title) {
  const lines = columns.map((column) => make('tr', {},
    make('th', { scope: 'row' }, column.h), cell(column, row), make('td', { className: 'means' }, column.t)));
  const tools = title ? [make('div', { className: 'grid-tools' }, make('span', { className: 'title' }, title))] : [];
  into.replaceChildren(...tools, make('table', { className: 'plain row', 'aria-label': title || table.title }, make('tbody', {}, ...lines)));
}

function absentNote(table) {
  return make('p', { className: 'absent' }, `Not measured in any row: ${table.absent.join(', ')}.`);
}

/** Draw a table into `into`. `only` restricts rows, `picked` columns; `go` shows a stretch of time. */
function drawTable(into, table, { title = '', only = null, picked = null, total = table.rows, go = null }) {
  const columns = picked ? picked.map((i) => table.columns[i]) : table.columns;
  const all = only || Array.from({ length: table.shown }, (_, i) => i);
  if (all.length === 1 && columns.length > LONGEST_ROW) {
    drawRow(into, table, columns, all[0], title);
    if (!picked && table.absent.length) into.append(absentNote(table));
    return;
  }
  const state = { rows: all, page: 0, column: null, descending: false };
  const span = go && table.span ? table.span.map((i) => table.columns[i]) : null;

  const search = make('input', {
    type: 'search', placeholder: 'filter: words, column>5', 'aria-label': `Filter ${title || table.title}`,
  });
  const count = make('span', { className: 'count', role: 'status' });
  const previous = make('button', { type: 'button', 'aria-label': 'Previous page' }, '‹');
  const next = make('button', { type: 'button', 'aria-label': 'Next page' }, '›');
  const body = make('tbody');
  const heads = columns.map((column, i) => {
    const button = make('button', { type: 'button', title: column.t }, column.h);
    const th = make('th', { scope: 'col', className: isText(column) ? '' : 'num', 'aria-sort': 'none' }, button);
    button.addEventListener('click', () => sortBy(i));
    return th;
  });
  const lead = span ? [make('th', { scope: 'col', 'aria-label': 'Show on the timeline' })] : [];

  function sortBy(i) {
    const first = !isText(columns[i]);
    state.descending = state.column === i ? !state.descending : first;
    state.column = i;
    heads.forEach((th, j) => th.setAttribute(
      'aria-sort', j !== i ? 'none' : state.descending ? 'descending' : 'ascending'));
    update();
  }

  function update() {
    const kept = search.value.trim() ? all.filter(filterOf(search.value, columns)) : all;
    state.rows = state.column === null ? kept : sorted(kept, columns[state.column], state.descending);
    state.page = 0;
    draw();
  }

  function draw() {
    const pages = Math.max(1, Math.ceil(state.rows.length / PAGE_ROWS));
    state.page = Math.max(0, Math.min(state.page, pages - 1));
    const from = state.page * PAGE_ROWS;
    const shown = state.rows.slice(from, from + PAGE_ROWS);
    body.replaceChildren(...shown.map((row) => {
      const tr = make('tr');
      if (span) tr.append(goCell(row));
      tr.append(...columns.map((column) => cell(column, row)));
      return tr;
    }));
    const many = state.rows.length;
    const range = many > PAGE_ROWS ? `${from + 1}–${from + shown.length} of ` : '';
    const left = total - all.length;
    count.textContent = `${range}${grouped(String(many))} row${many === 1 ? '' : 's'}`
      + (many < all.length ? ` (of ${grouped(String(all.length))})` : '')
      + (left > 0 ? `, ${grouped(String(left))} more only in the JSON` : '');
    previous.disabled = state.page === 0;
    next.disabled = state.page >= pages - 1;
    previous.hidden = next.hidden = pages === 1;
  }

  function goCell(row) {
    const [start, end] = span.map((c) => c.v[row]);
    const button = make('button', { type: 'button', title: 'Show on the timeline', 'aria-label': 'Show on the timeline' }, '→');
    if (start === null || end === null) button.disabled = true;
    button.addEventListener('click', () => go(start, end));
    return make('td', { className: 'go' }, button);
  }

  previous.addEventListener('click', () => { state.page -= 1; draw(); });
  next.addEventListener('click', () => { state.page += 1; draw(); });
  search.addEventListener('input', update);
  search.hidden = all.length < 4;
  const tools = make('div', { className: 'grid-tools' });
  if (title) tools.append(make('span', { className: 'title' }, title));
  tools.append(search, count, previous, next);
  const grid = make('table', { className: 'grid', 'aria-label': title || table.title },
    make('thead', {}, make('tr', {}, ...lead, ...heads)), body);
  into.replaceChildren(tools, make('div', { className: 'grid-scroll', tabIndex: 0, role: 'region', 'aria-label': `${title || table.title}, scrolls sideways` }, grid));
  if (!picked && table.absent.length) {
    into.append(absentNote(table));
  }
  draw();
}
