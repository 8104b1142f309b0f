// Keeps "closes in 2 h" true while a page is open. The words are those of words.py.
const MINUTE = 60, HOUR = 3600, DAY = 86400;

export function countDown() {
  const tick = () => document.querySelectorAll("time[data-until]").forEach(say);
  setInterval(tick, 15_000);
}

function say(element) {
  const left = (Date.parse(element.dataset.until) - Date.now()) / 1000;
  const words = left > 0 ? `closes in ${span(left)}` : `closed ${span(left)} ago`;
  if (element.textContent !== words) element.textContent = words;
  element.dataset.urgency = left < 2 * HOUR ? "soon" : left < DAY ? "today" : "later";
}

export function span(seconds) {
  const length = Math.abs(seconds);
  if (length < MINUTE) return "less than a minute";
  if (length < 2 * HOUR) return `${Math.floor(length / MINUTE)} min`;
  if (length < 2 * DAY) return `${Math.floor(length / HOUR)} h`;
  return `${Math.floor(length / DAY)} days`;
}
