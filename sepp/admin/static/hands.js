// Second part: what readers do. Questions come as dialogs; what is sent is what was shown.

const parse = (text) => new DOMParser().parseFromString(text, "text/html");
const headers = { accept: "text/html" };

// ---------- toasts ----------

function keepToast(node) {
  const close = () => node.remove();
  $("[data-dismiss]", node)?.addEventListener("click", close);
  if (!node.classList.contains("good")) return;
  const leave = () => (node.matches(":hover, :focus-within") ? setTimeout(leave, 2000) : close());
  setTimeout(leave, 8000);
}

function toast(text) {
  const node = make("div", { className: "toast bad", role: "alert" }, text);
  $("#toasts").append(node);
  setTimeout(() => node.remove(), 12000);
}

// ---------- questions ----------

async function ask(url, options, opener, otherwise) {
  let response;
  try {
    response = await fetch(url, { ...options, headers, redirect: "manual" });
  } catch {
    toast("Not done: the server cannot be reached.");
    return;
  }
  if (response.type === "opaqueredirect") {
    location.reload(); // nothing to ask: it is done, or the session is over
    return;
  }
  const answer = parse(await response.text());
  const question = $("#ask", answer);
  if (question) show(question, opener);
  else if (response.status === 422 && otherwise) otherwise(); // a page with what is wrong with it
  else toast($(".empty p", answer)?.textContent ?? `Not done: answer ${response.status}.`);
}

function show(question, opener) {
  const dialog = make("dialog", { className: "dialog" }, document.importNode(question, true));
  dialog.setAttribute("aria-labelledby", "ask-t");
  body.append(dialog);
  dialog.addEventListener("close", () => {
    dialog.remove();
    opener?.focus({ preventScroll: true });
  });
  tellTimes(true);
  wantTyped(dialog);
  $("form[data-steps]", dialog)?.addEventListener("submit", (event) => {
    event.preventDefault();
    goThrough(event.target, dialog);
  });
  dialog.showModal();
}

function wantTyped(root) {
  for (const field of all("[data-want]", root)) {
    const button = $("button:not([type=button])", field.form);
    const check = () => { button.disabled = field.value.trim() !== field.dataset.want; };
    field.addEventListener("input", check);
    check();
  }
}

// All that match, in steps of at most 1,000; what is done stays done.
async function goThrough(form, dialog) {
  const fields = Object.fromEntries(new FormData(form));
  const { steps: verb, queue } = form.dataset;
  const past = verb === "requeue" ? "requeued" : "deleted";
  const text = make("p");
  const progress = make("progress", { max: fields.total, value: 0, ariaLabel: "Progress" });
  $(".dialog-body", form).replaceChildren($("#ask-t", form), progress, text);
  const stop = make("button", { className: "btn", type: "button" }, "Stop here");
  let isStopped = false;
  stop.addEventListener("click", () => { isStopped = true; });
  $(".dialog-foot", form).replaceChildren(stop);
  const request = { filter: JSON.parse(form.dataset.filter), until_ms: Number(fields.until) };
  if (fields.why) request.reason = fields.why;
  let done = 0;
  let gone = 0;
  do {
    const url = `${API}/queues/${encodeURIComponent(queue)}/dead-letters:${verb}`;
    const response = await fetch(url, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(request),
    }).catch(() => undefined);
    const answer = await response?.json().catch(() => undefined);
    if (!response?.ok) {
      write(text, `${count(done)} ${past}, then it failed: ${answer?.error ?? "no answer"}.`);
      break;
    }
    done += answer[past];
    gone += answer.missing;
    request.cursor = answer.next_cursor ?? undefined;
    progress.value = done;
    const rest = gone ? `, ${count(gone)} already gone` : "";
    write(text, `${count(done)} of ${count(Number(fields.total))} ${past}${rest}.`);
  } while (request.cursor && !isStopped);
  stop.textContent = "Close";
  stop.focus();
  stop.addEventListener("click", () => location.reload());
  dialog.addEventListener("close", () => location.reload());
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  const { submitter } = event;
  if (form.matches("[data-ask]")) {
    event.preventDefault();
    const url = submitter?.getAttribute("formaction") ?? form.getAttribute("action");
    const data = new URLSearchParams(new FormData(form, submitter));
    ask(url ?? location.href, { method: "POST", body: data }, submitter, () => {
      delete form.dataset.ask;
      form.requestSubmit(submitter);
    });
    return;
  }
  const local = isLocal && $("[type=datetime-local]", form);
  if (local?.value) {
    const value = new Date(local.value).toISOString();
    form.append(make("input", { type: "hidden", name: local.name, value }));
    local.removeAttribute("name");
  }
  const { busy } = submitter?.dataset ?? {};
  if (busy) {
    setTimeout(() => {
      Object.assign(submitter, { disabled: true, ariaBusy: "true", textContent: busy });
    });
  }
});

document.addEventListener("click", (event) => {
  const target = event.target.closest("a, button");
  if (!target || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (target.matches("a[data-ask]")) {
    event.preventDefault();
    ask(target.href, {}, target);
  } else if (target.matches("[data-close]") && target.closest("dialog, .drawer")) {
    event.preventDefault();
    closeTop();
  } else if (target.matches("a[data-peek]") && matchMedia("(min-width: 60rem)").matches) {
    event.preventDefault();
    peek(target);
  } else if (target.matches("[data-copy], [data-copy-of]")) copy(target);
  else if (target.matches("[data-all]")) showAll(target);
  else if (target.matches("[data-wrap]")) {
    const isOn = $("#code").classList.toggle("nowrap-off");
    target.setAttribute("aria-pressed", String(isOn));
  } else if (target.matches("[data-undo]")) undo(target.closest("[data-field]"));
});

document.addEventListener("change", ({ target }) => {
  if (target.matches("form[data-auto] select")) target.form.requestSubmit();
});

async function copy(button) {
  const source = button.dataset.copy ?? $(`#${button.dataset.copyOf}`).textContent;
  try {
    await navigator.clipboard.writeText(source);
  } catch {
    const range = document.createRange(); // refused: select it instead
    range.selectNodeContents($(`#${button.dataset.copyOf ?? "job-id"}`) ?? button);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    return;
  }
  const { ariaLabel } = button;
  const tellCopied = (isDone) => {
    button.classList.toggle("done", isDone);
    button.ariaLabel = isDone ? "Copied" : ariaLabel;
    $("use", button).setAttribute("href", isDone ? "#i-check" : "#i-copy");
  };
  tellCopied(true);
  setTimeout(tellCopied, 2000, false);
}

// ---------- payload ----------

const ODD = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u206f\ufeff]/g;
const visible = (text) => text.replace(ODD, (char) => {
  const code = char.codePointAt(0);
  return code < 256 ? `\\x${pad(code.toString(16))}` : `\\u${pad(code.toString(16), 4)}`;
});

async function showAll(button) {
  button.disabled = true;
  const text = await (await fetch(button.dataset.all)).text();
  const code = $("#code");
  code.textContent = "";
  for (let place = 0; place < text.length; place += 262144) {
    code.append(visible(text.slice(place, place + 262144)));
  }
  button.remove();
  write($("#shown"), "as sent, shown whole");
}

// ---------- peek ----------

let peeked;
async function peek(link) {
  const answer = await fetch(`${link.href}?part=peek`, { headers }).catch(() => undefined);
  const part = answer?.ok && $("#peek-part", parse(await answer.text()));
  if (!part) {
    toast("This job is gone: requeued, deleted or expired.");
    link.closest("tr")?.classList.add("gone");
    return;
  }
  closePeek();
  const nodes = document.importNode(part, true).children;
  body.append(make("aside", { className: "drawer", ariaLabel: "Peek" }, ...nodes));
  body.classList.add("peeking");
  peeked = link;
  tellTimes(true);
}

function closePeek() {
  $(".drawer")?.remove();
  body.classList.remove("peeking");
  peeked = undefined;
}

function closeTop() {
  const dialog = $("dialog[open]");
  if (dialog) dialog.close();
  else if (peeked) {
    const link = peeked;
    closePeek();
    link.focus({ preventScroll: true });
  } else return false;
  return true;
}
