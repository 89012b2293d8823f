// Values as text: the scale of each column was chosen where the page was written.
const NOT_MEASURED = '-';
const $ = (selector, from = document) => from.querySelector(selector);

/** Create an element with properties and children; text is never taken as markup. */
function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes('-') || key === 'role') node.setAttribute(key, value);
    else node[key] = value;
  }
  node.append(...children);
  return node;
}

function grouped(text) {
  const [whole, part] = text.split('.');
  const spaced = whole.replace(/\B(?=(\d{3})+(?!\d))/g, ',');
  return part === undefined ? spaced : `${spaced}.${part}`;
}

function scaled(value, column) {
  return value === null ? NOT_MEASURED : grouped((value / column.f).toFixed(column.d));
}

const isText = (column) => column.s !== undefined;

/** The value of a cell for comparisons: a string, a number in the printed unit, or null. */
function plain(column, row) {
  const value = column.v[row];
  if (value === null) return null;
  return isText(column) ? column.s[value] : value / column.f;
}

function interval(column, row) {
  if (!column.lo || (column.lo[row] === null && column.hi[row] === null)) return '';
  return `[${scaled(column.lo[row], column)}, ${scaled(column.hi[row], column)}]`;
}

/** The text of a cell. */
function cellText(column, row) {
  const value = column.v[row];
  if (value === null) return NOT_MEASURED;
  if (isText(column)) return column.s[value];
  const bounds = interval(column, row);
  return bounds ? `${scaled(value, column)} ${bounds}` : scaled(value, column);
}
