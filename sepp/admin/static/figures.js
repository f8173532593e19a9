// The admin pages' one module, first part: words, charts and figures in place. The parts in this
// folder are served joined. Each page is whole without script; the module only spares reloads,
// keeps the figures fresh and listens to keys. Values enter as text and SVG geometry only.

const $ = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const page = document.documentElement;
const body = document.body;
const make = (tag, properties, ...children) => {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
};
const API = "/admin/api/v1";
const SVG = "http://www.w3.org/2000/svg";

// ---------- figures and times in words, as the server writes them ----------

const offset = Number(body.dataset.now) - Date.now(); // the server's clock against ours
const now = () => Date.now() + offset;
const digits = (number) => Math.round(number).toLocaleString("en-US");
const count = (number) => {
  if (number < 1e7) return digits(number);
  return number < 1e10 ? `${(number / 1e6).toFixed(1)} M` : `${(number / 1e9).toFixed(1)} G`;
};
const rate = (perSecond) => (perSecond < 99.95 ? perSecond.toFixed(1) : digits(perSecond));
const UNITS = [[86400e3, "d"], [3600e3, "h"], [60e3, "min"], [1e3, "s"]];
const span = (ms) => {
  const [size, name] = UNITS.find(([unit]) => ms >= unit) ?? [1e3, "s"];
  return `${Math.floor(Math.max(0, ms) / size)} ${name}`;
};
const plural = (number, one) => `${count(number)} ${one}${number === 1 ? "" : "s"}`;
const pad = (number, width = 2) => String(number).padStart(width, "0");
const isLocal = page.dataset.clock === "local";
const parts = (at) => ["FullYear", "Month", "Date", "Hours", "Minutes", "Seconds"]
  .map((unit) => at[`get${isLocal ? "" : "UTC"}${unit}`]());
const zone = (at) => {
  const minutes = Math.abs(at.getTimezoneOffset());
  const sign = at.getTimezoneOffset() > 0 ? "−" : "+";
  return isLocal ? `UTC${sign}${pad(Math.floor(minutes / 60))}:${pad(minutes % 60)}` : "UTC";
};
const clock = (at, form) => {
  const [year, month, day, hour, minute, second] = parts(at);
  const time = `${pad(hour)}:${pad(minute)}${form === "m" ? "" : `:${pad(second)}`}`;
  if (form === "ms") return `${time}.${pad(at.getUTCMilliseconds(), 3)}`;
  return form === "full" ? `${year}-${pad(month + 1)}-${pad(day)} ${time} ${zone(at)}` : time;
};
const relative = (ms) => {
  const distance = now() - ms;
  if (Math.abs(distance) > 2 * 86400e3) return undefined; // a date, as the server wrote it
  if (Math.abs(distance) < 1000) return "now";
  return distance > 0 ? `${span(distance)} ago` : `in ${span(-distance)}`;
};
const write = (node, text) => {
  if (node && text !== undefined && node.textContent !== text) node.textContent = text;
};

function tellTimes(isFirst) {
  for (const node of all("time[datetime]")) {
    const at = new Date(node.dateTime);
    if (!("abs" in node.dataset)) write(node, relative(at.getTime()));
    else if (isLocal && isFirst) write(node, clock(at, node.dataset.abs));
    if (isLocal && isFirst && node.title) node.title = clock(at, "full");
  }
  if (isLocal && isFirst) all("[data-zone]").forEach((node) => write(node, zone(new Date())));
}

// ---------- charts: read from the drawing, moved on with each frame ----------

const roundUp = (value) => {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value) + 1e-9);
  return power * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => power * step >= value - 1e-9);
};
const axis = (value) =>
  (value >= 10 || Number.isInteger(value) ? digits(value) : String(+value.toPrecision(6)));
const short = (value) => String(Math.round(value * 10) / 10);

class Chart {
  constructor(box) {
    this.box = box;
    this.svg = $("svg[data-peak]", box);
    [, , this.width, this.height] = this.svg.getAttribute("viewBox").split(" ").map(Number);
    this.peak = Number(this.svg.dataset.peak);
    this.span = Number(this.svg.dataset.span);
    this.last = Number(this.svg.dataset.last) || now();
    const path = (name) => $(name, this.svg).getAttribute("d");
    const values = (name) => (path(name).match(/[\d.]+ ([\d.]+)/g) ?? [])
      .map((pair) => (1 - Number(pair.split(" ")[1]) / this.height) * this.peak);
    const acked = values(".ack");
    const died = all(".hit title", this.svg)
      .map((node) => Number(/died (\d+)/.exec(node.textContent)[1]));
    const nothing = { enqueued: 0, acked: 0, died: 0, weight: 1 };
    this.points = values(".enq").map((enqueued, place) =>
      ({ enqueued, acked: acked[place], died: died[place] ?? 0, weight: 1 }));
    if (!this.points.length) this.points = Array.from({ length: 45 }, () => ({ ...nothing }));
    if (!died.length) {
      const step = this.width / (this.points.length - 1);
      for (const [, x] of path(".died").matchAll(/M([\d.]+)/g)) {
        const point = this.points[Math.round(Number(x) / step)];
        if (point) point.died = 1;
      }
    }
    this.step = this.span / this.points.length;
    if (this.svg.tabIndex === 0) this.pointAt();
  }

  add(at, { enqueued, acked, dead_lettered: died }) {
    while (at > this.last) {
      this.points.push({ enqueued: 0, acked: 0, died: 0, weight: 0 });
      this.points.shift();
      this.last += this.step;
    }
    const point = this.points.at(-1);
    point.weight += 1;
    point.enqueued += (enqueued - point.enqueued) / point.weight;
    point.acked += (acked - point.acked) / point.weight;
    point.died += Math.round(died);
    this.now = { enqueued, acked };
    this.draw();
  }

  draw() {
    const { points, width, height, svg, box } = this;
    const most = Math.max(...points.map((point) => Math.max(point.enqueued, point.acked)));
    this.peak = roundUp(most);
    const isIdle = !points.some(({ enqueued, acked, died }) => enqueued || acked || died);
    const note = $(".idle-note", box);
    if (note) note.hidden = !isIdle;
    const step = width / (points.length - 1);
    const line = (name) => (isIdle ? "" : "M" + points.map((point, place) =>
      `${short(place * step)} ${short(height - (point[name] / this.peak) * height)}`).join(" "));
    const set = (name, d) => $(name, svg)?.setAttribute("d", d);
    set(".enq", line("enqueued"));
    set(".enq-area", isIdle ? "" : `${line("enqueued")}V${height}H0Z`);
    set(".ack", line("acked"));
    const tick = (died) => short((died === 1 ? 0.15 : died < 10 ? 0.2 : 0.25) * height);
    set(".died", points.map(({ died }, place) =>
      (died ? `M${short(place * step)} ${height}v-${tick(died)}` : "")).join(""));
    const rows = all(".y span", box);
    if (rows.length) {
      write(rows[0], `${axis(this.peak)}/s`);
      write(rows[1], axis(this.peak / 2));
    }
    const first = this.last - this.span;
    const form = this.span <= 120e3 ? "s" : "m";
    all(".x time", box).forEach((node, place) =>
      write(node, clock(new Date(first + (this.span * place) / 3), form)));
    write($(".max", box), isIdle ? "idle" : `${rate(most)}/s`);
    write($("[data-v=enq]", box), `${rate(this.now.enqueued)}/s`);
    write($("[data-v=ack]", box), `${rate(this.now.acked)}/s`);
    write($("[data-v=died]", box), count(points.reduce((sum, point) => sum + point.died, 0)));
    if (this.place !== undefined) this.tell(this.place);
  }

  pointAt() {
    const { svg } = this;
    $(".hit", svg)?.remove();
    this.cross = svg.appendChild(document.createElementNS(SVG, "path"));
    this.cross.setAttribute("class", "cross");
    this.readout = $(".readout", this.box);
    svg.addEventListener("pointermove", (event) => {
      const { left, width } = svg.getBoundingClientRect();
      this.tell(Math.round(((event.clientX - left) / width) * (this.points.length - 1)));
    });
    const leave = () => {
      this.place = undefined;
      this.cross.setAttribute("d", "");
      write(this.readout, "");
    };
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("blur", leave);
    svg.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!move) return;
      event.preventDefault();
      this.tell((this.place ?? this.points.length - 1) + move);
    });
  }

  tell(place) {
    this.place = Math.min(Math.max(place, 0), this.points.length - 1);
    const point = this.points[this.place];
    const x = (this.place * this.width) / (this.points.length - 1);
    this.cross.setAttribute("d", `M${short(x)} 0V${this.height}`);
    const at = new Date(this.last - (this.points.length - 1 - this.place) * this.step);
    const text = `${clock(at)}: enqueued ${rate(point.enqueued)}/s, `
      + `acked ${rate(point.acked)}/s, died ${point.died}`;
    if (this.readout) write(this.readout, text);
    else this.svg.setAttribute("aria-label", text);
  }
}

const charts = new Map(all("[data-chart]").filter((box) => $("svg[data-peak]", box))
  .map((box) => [box, new Chart(box)]));

// ---------- figures in place ----------

// Figure -> field of the queue, words before it, words for none.
const MOMENTS = {
  age: ["oldest_ready_at_ms", "", "–"],
  oldest: ["oldest_ready_at_ms", "oldest ", "nothing waits"],
  due: ["next_due_ms", "next ", "nothing due"],
  lease: ["next_lease_end_ms", "next lease end ", "nothing leased"],
  next: ["next_due_ms", "", "–"],
  ends: ["next_lease_end_ms", "", "–"],
};

function momentText(name, queue) {
  if (name === "died-n") return count(queue.died_10_min ?? 0);
  if (name === "died") return `${count(queue.died_10_min ?? 0)} in 10 min`;
  if (name === "nack") {
    const { at_ms: at, reason } = queue.last_nack ?? {};
    return at && `Last nack ${relative(at)}${reason ? `: ${reason}` : ", no reason given"}`;
  }
  const [field, before, none] = MOMENTS[name] ?? [];
  const at = queue[field];
  if (!at) return none;
  return before + (field === "oldest_ready_at_ms" ? span(now() - at) : relative(at));
}

function paintQueue(box, queue) {
  for (const node of all("[data-f]", box)) {
    const number = queue[node.dataset.f];
    write(node, count(number));
    if (number >= 1e7) node.title = digits(number);
    const cell = node.closest("td, .depths a, .counts a");
    const isDead = node.dataset.f === "dead_lettered";
    cell?.classList.toggle("zero", !number && !cell.closest(".counts"));
    if (isDead) cell?.classList.toggle(cell.tagName === "TD" ? "red" : "some", number > 0);
  }
  for (const node of all("[data-r]", box)) {
    const perSecond = queue.rates[node.dataset.r];
    write(node, rate(perSecond) + (node.dataset.unit ?? ""));
    if (node.tagName === "TD") node.classList.toggle("zero", !perSecond);
  }
  for (const node of all("[data-m]", box)) {
    if (node.matches("td, .card-head .end")) {
      node.classList.toggle("old", now() - (queue.oldest_ready_at_ms ?? Infinity) >= 300e3);
    }
    write(node, momentText(node.dataset.m, queue));
  }
}

function paintAttention(lines) {
  const list = $("#attn");
  if (!list) return;
  const open = new Map(lines.map((line) => [`${line.rule} ${line.queue ?? ""}`, line]));
  for (const row of all("li[data-rule]", list)) {
    const line = open.get(`${row.dataset.rule} ${row.dataset.queue}`);
    if (line) write($("span", row), line.text);
    else if (!row.classList.contains("good")) {
      row.className = "good"; // recovered; the line stays until the page is loaded again
      $("use", row).setAttribute("href", "#i-check");
    }
  }
  const tally = $("#attn-count");
  tally.hidden = !lines.length;
  write(tally, String(lines.length));
}

let frameAt = 0; // when the newest frame came, by our clock
let shownAt = Number(body.dataset.now); // the moment of what is shown, by the server's clock
function paint(frame) {
  frameAt = Date.now();
  // Older than what is shown, unless the server's clock was set back.
  if (shownAt >= frame.ts_ms && shownAt - frame.ts_ms < 10e3) return;
  shownAt = frame.ts_ms;
  for (const box of all("[data-queue]")) {
    const queue = frame.queues[box.dataset.queue];
    if (queue) paintQueue(box, queue);
  }
  all("[data-all]").forEach((box) => paintQueue(box, frame.all));
  for (const [box, chart] of charts) {
    const queue = box.dataset.chart === "" ? frame.all : frame.queues[box.dataset.chart];
    if (queue) chart.add(frame.ts_ms, queue.rates);
  }
  paintAttention(frame.attention);
  const list = $("#jobs[data-state=dead_letter]");
  const died = list && frame.queues[list.dataset.queue]?.totals.dead_lettered;
  const newer = died - list?.dataset.died;
  if (newer > 0) offer("#newer", `${count(newer)} newer. Show`);
}

function offer(selector, text) {
  const link = $(selector);
  if (!link) return;
  link.hidden = false;
  write(link, text);
}
