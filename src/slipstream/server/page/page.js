"use strict";

// Everything a model or the server says is put in as text nodes; nothing here parses HTML.

const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const MOST_BARS = 16;

const conversation = [];
let running = null; // the AbortController of the reply that is being written
let key = ""; // held here alone

function headers() {
  const all = { "Content-Type": "application/json" };
  return key ? { ...all, Authorization: `Bearer ${key}` } : all;
}

function say(id, text) {
  byId(id).textContent = text;
}

function percent(part) {
  return `${Math.round(100 * part)} %`;
}

// ---- what the server offers

function option(value, text, disabled) {
  const element = document.createElement("option");
  element.value = value;
  element.textContent = text;
  element.disabled = disabled;
  return element;
}

function showMethods(methods) {
  const names = Object.keys(methods).filter((name) => name !== "none");
  const offered = names.filter((name) => methods[name].offered);
  const others = names.filter((name) => !methods[name].offered);
  byId("method").replaceChildren(
    option("", "the server's", false),
    option("none", "none", false),
    ...offered.map((name) => option(name, name, false)),
    ...others.map((name) => option(name, `${name}: ${methods[name].reason ?? "not offered"}`, true)),
  );
}

function showProps(props) {
  const own = props.slipstream ?? {};
  const parts = [props.model_alias ?? "a model"];
  if (own.context) parts.push(`${own.context} tokens of context`);
  if (own.isa) parts.push(String(own.isa));
  if (own.exact === true) parts.push("exact");
  else if (typeof own.exact === "string") parts.push(`exact: ${own.exact}`);
  say("model", parts.join(" · "));
  showMethods(own.draft_methods ?? {});
  const defaults = props.default_generation_settings?.params ?? {};
  const temperature = defaults.temperature;
  byId("temperature").placeholder = temperature === undefined ? "the server's" : String(temperature);
}

async function askServer() {
  try {
    const response = await fetch("props", { headers: headers() });
    if (response.status === 401) {
      askForKey();
      return;
    }
    if (!response.ok) throw new Error(await problemOf(response));
    showProps(await response.json());
    say("problem", "");
    byId("key-row").hidden = key === "";
  } catch (error) {
    say("model", "no answer from the server");
    say("problem", error.message);
  }
}

function askForKey() {
  byId("key-row").hidden = false;
  say("model", "this server wants an API key");
  say("problem", key ? "The server does not know this API key." : "Enter an API key.");
  byId("key").focus();
}

async function problemOf(response) {
  try {
    const body = await response.json();
    return body.error?.message ?? body.error ?? `HTTP ${response.status}`;
  } catch {
    return `HTTP ${response.status}`;
  }
}

// ---- one reply

class Transcript {
  constructor(role, title) {
    byId("empty")?.remove();
    this.article = document.createElement("article");
    this.article.className = role;
    const heading = document.createElement("h2");
    heading.textContent = title;
    this.body = document.createElement("p");
    this.article.append(heading, this.body);
    byId("transcript").append(this.article);
    this.text = "";
    this.waiting = [];
    this.run = null;
    this.frame = 0;
    this.follow();
  }

  follow() {
    this.article.scrollIntoView({ block: "end" });
  }

  // Whether the reader looks at the end; who scrolled back to read is left there.
  atEnd() {
    const seen = Math.min(innerHeight, byId("transcript").getBoundingClientRect().bottom);
    return this.article.getBoundingClientRect().bottom <= seen + 48;
  }

  // Text is drawn once per frame, however many tokens come.
  add(text, drafted) {
    if (text === "") return;
    this.text += text;
    this.waiting.push([text, drafted]);
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const atEnd = this.atEnd();
    for (const [text, drafted] of this.waiting.splice(0)) {
      const name = drafted ? "drafted" : "";
      if (this.run === null || this.run.className !== name) {
        this.run = document.createElement("span");
        this.run.className = name;
        this.body.append(this.run);
      }
      this.run.append(text);
    }
    this.run?.normalize();
    if (atEnd) this.follow();
  }
}

// Drafts that reached a position and were accepted there, from what every step adds.
class Acceptance {
  constructor() {
    this.reached = [];
    this.accepted = [];
    this.drafted = 0;
  }

  step(draftedSoFar, accepted) {
    const drafted = draftedSoFar - this.drafted;
    this.drafted = draftedSoFar;
    for (let i = 0; i < Math.min(drafted, accepted + 1); i += 1) {
      this.reached[i] = (this.reached[i] ?? 0) + 1;
      this.accepted[i] = (this.accepted[i] ?? 0) + (i < accepted ? 1 : 0);
    }
  }

  rates() {
    return this.reached.map((reached, i) => this.accepted[i] / reached);
  }

  counts() {
    return this.reached;
  }
}

function shape(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [attribute, value] of Object.entries(attributes)) {
    element.setAttribute(attribute, String(value));
  }
  if (text !== undefined) element.textContent = text;
  return element;
}

function bar(rate, place, width, title) {
  const group = shape("g", {});
  const [x, height] = [place * width + width * 0.15, 80 * rate];
  const box = { x, width: width * 0.7, rx: 2 };
  group.append(
    shape("title", {}, title),
    shape("rect", { ...box, y: 20, height: 80, class: "track" }),
    shape("rect", { ...box, y: 100 - height, height, class: "bar" }),
    shape("text", { x: place * width + width / 2, y: 114 }, String(place + 1)),
  );
  if (width >= 28) {
    group.append(shape("text", { x: place * width + width / 2, y: 15 }, percent(rate)));
  }
  return group;
}

function showChart(rates, counts) {
  const shown = rates.slice(0, MOST_BARS);
  const width = 320 / Math.max(shown.length, 6);
  const titles = shown.map((rate, i) => {
    const of = counts[i] === undefined ? "" : ` of ${counts[i]}`;
    return `${i + 1}: ${percent(rate)}${of}`;
  });
  byId("chart").replaceChildren(...shown.map((rate, i) => bar(rate, i, width, titles[i])));
  const more = rates.length > shown.length ? ", .." : "";
  say("chart-text", titles.length ? `${titles.join(", ")}${more}` : "No drafts yet.");
}

function showFigures(timings, tokens) {
  const drafted = timings.draft_n ?? 0;
  const accepted = timings.draft_n_accepted ?? 0;
  const speed = timings.predicted_per_second;
  const passes = timings.target_passes;
  if (typeof speed === "number") say("speed", `${speed.toFixed(1)} tokens/s`);
  if (typeof timings.prompt_ms === "number") {
    say("first-token", `${(timings.prompt_ms / 1000).toFixed(2)} s for ${timings.prompt_n} tokens`
      + (timings.cache_n ? `, ${timings.cache_n} reused` : ""));
  }
  say("tokens", passes ? `${tokens} in ${passes} passes` : String(tokens));
  say("drafts", drafted ? `${accepted} of ${drafted} accepted (${percent(accepted / drafted)})` : "none");
}

// Who drafts, with the parameters that are not at rest.
function showEffect(effect) {
  const { type, ...rest } = effect;
  const parameters = Object.entries(rest)
    .filter(([, value]) => value !== null && value !== 0)
    .map(([name, value]) => `${name} ${value}`);
  say("in-effect", [type || "none", ...parameters].join(" · "));
}

function clearFigures() {
  for (const id of ["in-effect", "speed", "first-token", "tokens", "drafts", "seed-used"]) say(id, "–");
  showChart([], []);
}

// ---- asking for a reply

function wanted() {
  const body = {
    model: "slipstream",
    messages: conversation,
    stream: true,
    show_drafts: true,
    timings_per_token: true,
    max_tokens: Number(byId("max-tokens").value),
  };
  const [temperature, seed] = [byId("temperature").value, byId("seed").value];
  const method = byId("method").value;
  if (temperature !== "") body.temperature = Number(temperature);
  if (seed !== "") body.seed = Number(seed);
  if (method !== "") body.speculative = { type: method };
  return body;
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("The connection ended before the reply did.");
    const messages = (held + value).split("\n\n");
    held = messages.pop();
    for (const message of messages) {
      const lines = message.split("\n").filter((line) => line.startsWith("data:"));
      const data = lines.map((line) => line.slice(5).trim()).join("\n");
      if (data === "[DONE]") return;
      if (data !== "") yield JSON.parse(data);
    }
  }
}

class Reply {
  constructor() {
    this.transcript = new Transcript("assistant", "Model");
    this.acceptance = new Acceptance();
    this.tokens = 0;
    this.accepted = 0;
    this.finish = null;
  }

  take(chunk) {
    if (chunk.error) throw new Error(chunk.error.message ?? String(chunk.error));
    const own = chunk.slipstream ?? {};
    const choice = chunk.choices?.[0];
    const tokens = own.tokens ?? [[choice?.delta?.content ?? "", false]];
    for (const [text, drafted] of tokens) this.transcript.add(text, drafted);
    const accepted = tokens.filter(([, drafted]) => drafted).length;
    this.tokens += own.tokens === undefined ? 0 : tokens.length;
    this.accepted += accepted;
    this.finish = choice?.finish_reason ?? this.finish;
    if (chunk.speculative) showEffect(chunk.speculative);
    if (chunk.seed != null) say("seed-used", String(chunk.seed));
    if (chunk.timings) this.show(chunk.timings, accepted);
  }

  show(timings, accepted) {
    this.acceptance.step(timings.draft_n ?? 0, accepted);
    showFigures(timings, timings.predicted_n ?? this.tokens);
    showChart(timings.acceptance_at ?? this.acceptance.rates(), this.acceptance.counts());
  }

  get empty() {
    return this.transcript.text === "";
  }

  end(note) {
    this.transcript.draw();
    if (!this.empty) conversation.push({ role: "assistant", content: this.transcript.text });
    say("status", `${note}: ${this.tokens} tokens, ${this.accepted} of them accepted draft tokens.`);
  }
}

function busy(now) {
  byId("send").disabled = now;
  byId("stop").disabled = !now;
  byId("transcript").setAttribute("aria-busy", String(now));
}

const ENDINGS = { length: "Reply cut off at the limit", stop: "Reply finished" };

async function reply(controller) {
  const answer = new Reply();
  let note = "Reply failed";
  try {
    const response = await fetch("v1/chat/completions", {
      method: "POST",
      headers: headers(),
      body: JSON.stringify(wanted()),
      signal: controller.signal,
    });
    if (response.status === 401) askForKey();
    if (!response.ok) throw new Error(await problemOf(response));
    for await (const chunk of events(response)) answer.take(chunk);
    note = ENDINGS[answer.finish] ?? "Reply finished";
  } catch (error) {
    if (controller.signal.aborted) note = "Reply stopped";
    else say("problem", error.message);
  }
  // a new chat may have begun meanwhile; its transcript is not this reply's
  if (running === controller) answer.end(note);
  return answer;
}

async function send() {
  const field = byId("message");
  const text = field.value;
  if (running !== null || text.trim() === "") return;
  const controller = new AbortController();
  running = controller;
  say("problem", "");
  say("status", "Waiting for the model …");
  clearFigures();
  conversation.push({ role: "user", content: text });
  const asked = new Transcript("user", "You");
  asked.add(text, false);
  field.value = "";
  field.focus();
  busy(true);
  const answer = await reply(controller);
  if (running !== controller) return;
  running = null;
  if (answer.empty) takeBack(text, asked, answer);
  if (document.activeElement === byId("stop")) field.focus();
  busy(false);
}

// Without an answer the message is the user's again: two in a row are refused by some templates.
function takeBack(text, asked, answer) {
  conversation.pop();
  asked.article.remove();
  answer.transcript.article.remove();
  if (byId("message").value === "") byId("message").value = text;
}

function stop() {
  running?.abort();
}

function newChat() {
  stop();
  running = null;
  conversation.length = 0;
  byId("transcript").replaceChildren();
  say("problem", "");
  say("status", "New chat.");
  clearFigures();
  busy(false);
  byId("message").focus();
}

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
byId("message").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (running === null) byId("composer").requestSubmit();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") stop();
});
byId("stop").addEventListener("click", stop);
byId("new-chat").addEventListener("click", newChat);
byId("use-key").addEventListener("click", () => {
  key = byId("key").value.trim();
  askServer();
});
byId("key").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  byId("use-key").click();
});

clearFigures();
askServer();
