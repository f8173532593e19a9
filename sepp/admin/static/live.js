// Third part: the stream, selections, settings, keys; and the start of it all.

// ---------- the stream ----------

const pill = $("#live");
const names = JSON.parse(body.dataset.live || "null");
const MARKS = {
  Live: ["on", "d-ready"],
  Paused: ["", "i-pause"],
  Connecting: ["", "i-restart"],
  Stale: ["stale", "i-warn"],
  Polling: ["stale", "i-restart"],
  Offline: ["off", "i-dead"],
};
let source;
let isPaused = false;
let heardAt = Date.now(); // the newest answer of any kind
let polledAt = 0;
let openedAt = 0;

function tell(state, more = "") {
  const [name, mark] = MARKS[state];
  pill.className = `live ${name}`;
  $("use", pill).setAttribute("href", `#${mark}`);
  write($("span", pill), state + more);
  pill.setAttribute("aria-pressed", String(isPaused));
  pill.title = isPaused ? "Figures stand still. Press to go on (p)" : "Press to pause (p)";
  body.classList.toggle("is-stale", state === "Stale" || state === "Offline");
  const notice = $("#offline");
  if (state === "Offline" && !notice) {
    const text = `The server cannot be reached. This is from ${clock(new Date(now()))}.`;
    const again = make("button", { className: "btn small end", type: "button" }, "Try now");
    again.addEventListener("click", () => { poll(); connect(); });
    const box = { id: "offline", className: "notice bad", role: "alert" };
    $("main").prepend(make("div", box, make("div", {}, text), again));
  } else if (state !== "Offline") notice?.remove();
}

const query = () => {
  const text = names.map((name) => `queues=${encodeURIComponent(name)}`).join("&") || "queues=";
  return `points=1&span_ms=1000&${text.length < 12000 ? text : ""}`; // no history, frames only
};

function connect() {
  source?.close();
  openedAt = Date.now();
  source = new EventSource(`${API}/events?${query()}`);
  const on = (name, act) => source.addEventListener(name, (event) => {
    heardAt = Date.now();
    if (!isPaused) act(event.data);
  });
  on("hello", (data) => {
    paint(JSON.parse(data).frame);
    watch();
    noteEntry(false); // what was done before the stream was open
  });
  on("stats", (data) => paint(JSON.parse(data)));
  on("lagged", poll);
  on("audit", () => noteEntry(true));
}

async function poll() {
  polledAt = Date.now();
  const response = await fetch(`${API}/overview?${query()}`).catch(() => undefined);
  if (!response) return;
  heardAt = Date.now();
  if (response.status === 401) location.reload(); // the session is over: sign in, then back here
  else if (response.ok && !isPaused) paint((await response.json()).frame);
}

function watch() {
  const silence = Date.now() - Math.max(frameAt, openedAt);
  if (isPaused) tell("Paused");
  else if (Date.now() - heardAt > 15000) tell("Offline");
  else if (!frameAt) tell("Connecting");
  else if (silence > 5000) tell("Polling", " 5 s");
  else if (silence > 3000) tell("Stale", ` ${Math.round(silence / 1000)} s`);
  else tell("Live");
  if (isPaused || document.hidden) return;
  if (silence > 5000 && Date.now() - polledAt > 5000) poll();
  if (silence > 5000 && Date.now() - openedAt > 30000) connect();
}

function pause() {
  isPaused = !isPaused;
  if (!isPaused) poll();
  watch();
}

// ---------- the trail ----------

let newEntries = 0;
async function noteEntry(isNew) {
  const trail = $("#trail[data-top]");
  if (!trail) return;
  if ($("#follow")?.getAttribute("aria-pressed") === "true" && scrollY < 50) {
    const answer = await fetch(location.href, { headers }).catch(() => undefined);
    const fresh = answer?.ok && $("#trail tbody", parse(await answer.text()));
    if (fresh) $("tbody", trail).replaceWith(document.importNode(fresh, true));
    tellTimes(true);
    return;
  }
  if (!isNew) return;
  newEntries += 1;
  const words = newEntries === 1 ? "1 new entry" : `${count(newEntries)} new entries`;
  offer("#newer", `${words}. Show`);
}

// ---------- selection: by key, of the rows shown ----------

const list = $("#jobs");
const boxes = () => all("tbody .check", list ?? body);
let lastBox;

function tellSelection() {
  const picked = boxes().filter((box) => box.checked);
  for (const box of boxes()) box.closest("tr").classList.toggle("sel", box.checked);
  const whole = $("#pick-all");
  whole.checked = picked.length > 0 && picked.length === boxes().length;
  whole.indeterminate = picked.length > 0 && !whole.checked;
  $("#bulk").classList.toggle("on", picked.length > 0);
  $("#clear").hidden = !picked.length;
  const hint = $("#picked");
  hint.dataset.hint ??= hint.textContent;
  const text = `${picked.length} selected of the ${boxes().length} shown`;
  write(hint, picked.length ? text : hint.dataset.hint);
  for (const button of all("[data-verb]", list)) {
    const number = picked.length ? ` ${picked.length}` : "";
    write($("span", button), `${button.dataset.verb}${number}…`);
    button.disabled = !picked.length;
  }
}

function pick(box, isRange) {
  const every = boxes();
  if (isRange && lastBox) {
    const [from, to] = [every.indexOf(lastBox), every.indexOf(box)].sort((a, b) => a - b);
    every.slice(from, to + 1).forEach((one) => { one.checked = box.checked; });
  }
  lastBox = box;
  tellSelection();
}

function pickAll(isOn) {
  boxes().forEach((box) => { box.checked = isOn; });
  tellSelection();
}

if ($("#bulk")) {
  list.addEventListener("click", (event) => {
    if (event.target.id === "pick-all") pickAll(event.target.checked);
    else if (event.target.id === "clear") pickAll(false);
    else if (event.target.matches("tbody .check")) pick(event.target, event.shiftKey);
  });
  tellSelection();
}

// ---------- settings ----------

const control = (field) => $("[data-was]", field);
const value = (node) => (node.type === "checkbox" ? String(node.checked) : node.value.trim());
const SIZES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [1024, "KiB"]];

function reading(unit, number) {
  const steps = unit === "ms" ? UNITS : SIZES;
  const found = steps.find(([size]) => number >= size && Number.isInteger((number / size) * 4));
  return found ? `${unit} = ${number / found[0]} ${found[1]}` : unit;
}

function tellFields(form) {
  const changed = all("[data-field]", form).filter((field) => {
    const node = control(field);
    const isChanged = value(node) !== node.dataset.was.trim();
    field.classList.toggle("changed", isChanged);
    all("[data-changed]", field).forEach((mark) => { mark.hidden = !isChanged; });
    if (node.type === "checkbox") write($(".unit", field), node.checked ? "On" : "Off");
    const unit = $("[data-unit]", field);
    const [name] = unit?.textContent.split(" ") ?? [];
    if (unit && isChanged) write(unit, reading(name, Number(value(node))));
    return isChanged;
  });
  const waits = changed.filter((field) => $(".marks", field).textContent.includes("estart")).length;
  const s = (waits || changed.length) === 1 ? "s" : "";
  const when = waits ? `${waits} wait${s} for a restart` : `appl${s ? "ies" : "y"} at once`;
  const bar = $(".savebar", form);
  bar?.classList.toggle("clean", !changed.length);
  const text = changed.length && `${plural(changed.length, "change")}, ${when}`;
  write($("[data-tally]", form), text || "Nothing changed yet");
  for (const tally of all("[data-tally-of]")) {
    const section = `[data-section="${tally.dataset.tallyOf}"]`;
    const number = changed.filter((field) => field.closest(section)).length;
    write(tally, number ? String(number) : "");
  }
}

function undo(field) {
  const node = control(field);
  if (node.type === "checkbox") node.checked = node.dataset.was === "true";
  else node.value = node.dataset.was;
  tellFields(node.form);
  node.focus();
}

for (const form of all("[data-fields]")) {
  form.addEventListener("input", () => tellFields(form));
  tellFields(form);
}

const data = $("[data-enqueue] #data");
if (data) {
  const tellBytes = () => {
    const size = new TextEncoder().encode(data.value).length;
    write($("#bytes"), `${digits(size)} of at most ${digits(Number(data.dataset.limit))} bytes`);
  };
  data.addEventListener("input", tellBytes);
  tellBytes();
}

// ---------- keys ----------

const rows = () => all(".data tbody tr");
let cursor = -1;

function moveTo(place) {
  rows()[cursor]?.classList.remove("cursor");
  cursor = Math.min(Math.max(place, 0), rows().length - 1);
  const row = rows()[cursor];
  if (!row) return;
  row.classList.add("cursor");
  row.scrollIntoView({ block: "nearest" });
  $(".id a, .name a, a", row)?.focus({ preventScroll: true });
  if (peeked) peek($("[data-peek]", row));
}

const PAGES = { q: "", c: "config", a: "audit", s: "server" };
// Key -> what it does, or what it presses.
const KEYS = {
  "?": ".foot a",
  "/": () => $("[data-filter]")?.focus(),
  i: () => $("#find")?.focus(),
  j: () => moveTo(cursor + 1),
  k: () => moveTo(cursor - 1),
  o: ".cursor [data-peek]",
  x: ".cursor .check",
  a: () => $("#pick-all") && pickAll(boxes().some((box) => !box.checked)),
  r: "#newer:not([hidden]), #resort:not([hidden])",
  p: pause,
  u: "[name=clock]",
  R: "[data-verb=Requeue]:enabled",
  Delete: "[data-verb=Delete]:enabled",
  1: ".states .ready",
  2: ".states .sched",
  3: ".states .flight",
  4: ".states .dead",
};
let isGoing = false;

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !$("dialog[open]")) {
    if (!closeTop() && $("#bulk")) pickAll(false);
    return;
  }
  const isTyping = event.target.closest("input:not([type=checkbox]), textarea, select, dialog");
  const isChord = event.ctrlKey || event.metaKey || event.altKey;
  if (page.dataset.keys === "off" || isTyping || isChord) return;
  const act = KEYS[event.key];
  if (isGoing && event.key in PAGES) location.href = `/admin/${PAGES[event.key]}`;
  else if (event.key === "X" && $(".cursor .check")) {
    const box = $(".cursor .check");
    box.checked = true;
    pick(box, true);
  } else if (event.key === "g") {
    isGoing = true;
    setTimeout(() => { isGoing = false; }, 1500);
    return;
  } else if (act) {
    event.preventDefault();
    if (act.call) act();
    else $(act)?.click();
  }
  isGoing = false;
});

// ---------- start ----------

tellTimes(true);
wantTyped(document);
all(".toast").forEach(keepToast);
all("[data-all][hidden], [data-wrap][hidden], #follow").forEach((node) => { node.hidden = false; });
$("#follow")?.addEventListener("click", ({ currentTarget: button }) =>
  button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true")));
const loadedAt = Date.now();
setInterval(() => {
  if (!isPaused) tellTimes(false);
  const minutes = Math.floor((Date.now() - loadedAt) / 60e3);
  if (minutes >= 2) offer("#resort", `Order is ${minutes} min old. Sort again`);
}, 1000);

if (pill && names) {
  pill.disabled = false;
  pill.addEventListener("click", pause);
  connect();
  watch();
  setInterval(watch, 1000);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) source.close();
    else {
      poll();
      connect();
    }
  });
}
