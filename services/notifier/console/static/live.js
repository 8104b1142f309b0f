// Follows the campaign's live stream and draws anew what is marked with data-live, by asking for the same page again.
const FIRST_WAIT = 500, LONGEST_WAIT = 15_000, GATHER = 120, BUSY = 2_000, UNSEEN = 30_000, STALE = 300_000;

export function follow() {
  const { campaign, csrf } = document.body.dataset;
  if (!campaign || !csrf || !document.querySelector("[data-live]")) return;
  const sign = document.getElementById("live");
  let last = null, source = null, attempt = 0; // of the stream
  let wait = FIRST_WAIT, retry = null, hidden = null;
  let due = null, drawing = false, again = false, news = false;

  const show = (state, word) => {
    sign.hidden = false;
    sign.dataset.state = state;
    sign.querySelector(".word").textContent = word;
  };

  async function connect() {
    rest();
    const mine = attempt;
    try {
      const answer = await fetch("/console/ticket", { method: "POST", headers: { "X-Takeback-Csrf": csrf } });
      if (answer.redirected || answer.status === 401) return show("off", "signed out");
      if (!answer.ok) throw new Error(String(answer.status));
      const { ticket } = await answer.json();
      if (mine !== attempt) return; // somebody looked away meanwhile, or another attempt is further
      const query = new URLSearchParams(last ? { ticket, lastEventId: last } : { ticket });
      source = new EventSource(`/v1/campaigns/${campaign}/stream?${query}`);
    } catch {
      return mine === attempt && later();
    }
    // What happened between the page's drawing and the stream's opening is drawn then.
    source.onopen = () => { wait = FIRST_WAIT; show("on", "live"); draw(); };
    // A ticket is good for one connection, so the browser's own way of trying again would be refused.
    source.onerror = later;
    source.addEventListener("closed", later);
    source.addEventListener("reset", (event) => { last = event.lastEventId; draw(); });
    for (const type of TYPES) source.addEventListener(type, (event) => { last = event.lastEventId; draw(); });
  }

  // A browser allows few connections to one place: a page that nobody sees leaves its own to others.
  function rest() {
    attempt += 1;
    clearTimeout(retry);
    source?.close();
    source = null;
  }

  function later() {
    rest();
    show("off", "trying to be live again");
    retry = setTimeout(connect, wait);
    wait = Math.min(wait * 2, LONGEST_WAIT);
  }

  // Something has happened.
  function draw() {
    news = true;
    soon();
  }

  function soon(after = GATHER) {
    clearTimeout(due);
    due = setTimeout(redraw, after);
  }

  async function redraw() {
    if (drawing) { again = true; return; }
    drawing = true;
    const telling = news;
    news = false;
    try {
      const answer = await fetch(location.href);
      const fresh = answer.ok && !answer.redirected ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
      if (fresh && !pressed()) return put(fresh, telling);
      news ||= telling;
      if (fresh) soon();
      else if (answer.status >= 500) soon(BUSY);
    } catch {
      // The next event draws it; the stream's own sign says whether there will be one.
    } finally {
      drawing = false;
      if (again) { again = false; soon(); }
    }
  }

  // "5 min ago" and "after your duty ends in 2 h" grow old by themselves: no news, so nobody is told.
  setInterval(() => { if (!document.hidden) redraw(); }, STALE);
  addEventListener("pagehide", rest);
  addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hidden);
    if (document.hidden) hidden = setTimeout(rest, UNSEEN);
    else if (!source) connect();
  });
  connect();
}

// Whether somebody holds down what would be drawn anew: the click would find nothing when it comes.
function pressed() {
  return document.querySelector("[data-live]:active") !== null;
}

function put(fresh, telling) {
  let changed = false;
  for (const region of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(region.id);
    if (!next || region.innerHTML === next.innerHTML) continue;
    const active = document.activeElement;
    if (region.contains(active) && (active.matches("input, select, textarea") || region.querySelector("dialog[open]"))) continue;
    const path = region.contains(active) ? pathTo(active, region) : null;
    const unfolded = [...region.querySelectorAll("details")].map((one) => one.open);
    region.replaceChildren(...next.childNodes);
    region.querySelectorAll("details").forEach((one, place) => { one.open = unfolded[place] ?? false; });
    if (path) followed(region, path)?.focus();
    changed = true;
  }
  if (changed && telling) document.getElementById("announce").textContent = "This page has changed.";
}

function pathTo(element, top) {
  const path = [];
  for (let at = element; at !== top; at = at.parentElement) path.unshift([...at.parentElement.children].indexOf(at));
  return path;
}

function followed(top, path) {
  return path.reduce((at, place) => at?.children[place], top);
}

const TYPES = [
  "run.opened", "run.closed", "run.paused", "run.resumed", "entry.pending", "entry.committed", "entry.failed", "entry.in_doubt",
  "entry.denied", "entry.reverted", "entry.remedied", "approval.requested", "approval.decided", "link.confirmed",
  "plan.decided", "reversal.step", "reversal.completed", "review.acknowledged", "member.changed", "agent.changed",
];
