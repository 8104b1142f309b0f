// A player's screen. The narrator's calls are messages in a feed; when one is taken back, its messages leave the feed once
// its whole turn is taken back, and stay, marked, after a partial undo. The state is read anew from the game's database.
const [, player, adventure] = location.pathname.split("/").map(decodeURIComponent);
const at = (what) => `/${encodeURIComponent(player)}/${encodeURIComponent(adventure)}/${what}`;
const feed = document.getElementById("feed");
const party = document.getElementById("party");
let last = null, wait = 500;
let asked = 0, answered = 0; // of the questions how everybody stands

document.getElementById("player").textContent = player;
await refetch();
connect();

function connect() {
  const source = new EventSource(at("stream") + (last ? `?lastEventId=${encodeURIComponent(last)}` : ""));
  // What happened between the last answer and the stream's opening is in the next one.
  source.onopen = () => { wait = 500; live("live"); refetch(); };
  source.onerror = () => {
    if (source.readyState !== EventSource.CLOSED) return live("connecting again"); // the browser does it by itself
    live("connecting again"); // refused, as while Takeback starts: by ourselves then
    setTimeout(connect, wait);
    wait = Math.min(wait * 2, 10_000);
  };
  hear(source, "entry.committed", ({ entry }) => { if (ours(entry)) told(entry); });
  hear(source, "broadcast.sent", ({ payload }) => { if (payload?.adventure === adventure && payload.creatures) heard(payload.creatures); });
  hear(source, "broadcast.interaction_reverted", reverted);
  source.addEventListener("reset", (event) => { last = event.lastEventId; refetch(); });
}

function hear(source, type, does) {
  source.addEventListener(type, (event) => {
    last = event.lastEventId;
    does(JSON.parse(event.data).data);
  });
}

function ours(entry) {
  return entry.server === "table" && entry.kind === "call" && entry.arguments?.adventure === adventure;
}

// The narrator did something: a message in the turn it belongs to. One that was taken back and then made good again stands again.
function told(entry) {
  const turn = turnOf(entry.interaction ?? entry.id, entry.principal);
  let message = turn.querySelector(`[data-invocation="${entry.id}"]`);
  if (!message) {
    message = document.createElement("li");
    message.dataset.invocation = entry.id;
    turn.querySelector("ol").append(message);
  }
  message.className = "gm";
  message.textContent = sentence(entry);
  turn.querySelector(".note").hidden = !turn.querySelector(".taken-back");
  quiet();
}

function turnOf(id, principal) {
  let turn = feed.querySelector(`[data-turn="${id}"]`);
  if (!turn) {
    turn = document.createElement("li");
    turn.dataset.turn = id;
    const said = document.createElement("p");
    said.className = "said";
    said.textContent = `${principal} takes a turn`;
    const note = document.createElement("p");
    note.className = "note";
    note.textContent = "Part of this turn was taken back.";
    note.hidden = true;
    turn.append(said, document.createElement("ol"), note);
    feed.append(turn);
  }
  return turn;
}

// interaction_reverted {invocationId, toolName, interaction, interactionComplete}, source "system"
function reverted(data) {
  const message = feed.querySelector(`[data-invocation="${data.invocationId}"]`);
  const turn = message?.closest("[data-turn]") ?? feed.querySelector(`[data-turn="${data.interaction}"]`);
  if (turn && data.interactionComplete) {
    turn.remove(); // the player's message and all of the narrator's
  } else if (message) {
    message.className = "gm taken-back";
    turn.querySelector(".note").hidden = false;
  }
  quiet();
  refetch();
}

// An answer that is still under way may be older than what is heard now.
function heard(creatures) {
  standing(creatures);
  if (asked !== answered) refetch();
}

async function refetch() {
  const mine = ++asked;
  const answer = await fetch(at("state"));
  const state = answer.ok ? await answer.json() : null;
  if (mine !== asked) return; // asked again since: the next answer is the newer one
  answered = mine;
  if (!state) return;
  document.getElementById("title").textContent = state.title;
  standing(state.creatures);
}

function standing(creatures) {
  for (const one of creatures) {
    let row = party.querySelector(`[data-creature="${one.id}"]`);
    if (!row) {
      row = document.createElement("li");
      row.dataset.creature = one.id;
      row.append(...["name", "hp", "conditions"].map((part) => Object.assign(document.createElement("span"), { className: part })));
      party.append(row);
    }
    if (one.max_hp) row.dataset.max = one.max_hp;
    row.dataset.hp = one.hp;
    row.classList.toggle("mine", one.player === player || row.classList.contains("mine"));
    row.querySelector(".name").textContent = one.name;
    row.querySelector(".hp").textContent = `${one.hp} of ${row.dataset.max ?? "?"} hp`;
    row.querySelector(".conditions").textContent = one.conditions.join(", ");
  }
}

function sentence({ operation, arguments: given }) {
  const about = Object.entries(given).filter(([name]) => name !== "adventure").map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`);
  return `${operation.replaceAll("_", " ")}: ${about.join(", ")}`;
}

function quiet() {
  document.getElementById("quiet").hidden = feed.children.length > 0;
}

function live(word) {
  document.getElementById("live").textContent = word;
}
