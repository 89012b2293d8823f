// Returns every text whose contrast to the ground behind it is below 4.5.
const parse = (colour) => {
  const numbers = colour.match(/[\d.]+/g).map(Number);
  const scale = colour.startsWith('color(') ? 255 : 1;
  return [...numbers.slice(0, 3).map((v) => v * scale), numbers[3] ?? 1];
};
const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
  .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const ground = (element) => {
  for (let e = element; e; e = e.parentElement) {
    const colour = parse(getComputedStyle(e).backgroundColor);
    if (colour[3] > 0.99) return colour;
  }
  return [255, 255, 255];
};
const bad = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const text = walker.currentNode.textContent.trim();
  const e = walker.currentNode.parentElement;
  if (!text || /^(script|style|noscript|title)$/i.test(e.tagName)) continue;
  if (!e.getClientRects().length || e.closest(':disabled')) continue;
  const style = getComputedStyle(e);
  const [a, b] = [light(parse(e.closest('svg') ? style.fill : style.color)), light(ground(e))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) bad.push(`${ratio.toFixed(2)} ${e.tagName}.${e.className} ${text.slice(0, 40)}`);
}
return bad;
