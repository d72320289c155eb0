// Everything a model or the server says is put in as text nodes; nothing here parses HTML.

import { byId, clearFigures, say, showChart, showEffect, showFigures } from "./figures.js";
import { Transcript } from "./transcript.js";

const conversation = [];
let running = null; // the AbortController of the reply that is being written
let key = ""; // held here alone

function headers() {
  const all = { "Content-Type": "application/json" };
  return key ? { ...all, Authorization: `Bearer ${key}` } : all;
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
    if (!byId("key-row").hidden) byId("message").focus();
    byId("key-row").hidden = true;
  } catch (error) {
    say("model", "no answer from the server");
    showProblem(error);
  }
}

function askForKey() {
  byId("key-row").hidden = false;
  say("model", "this server wants an API key");
  say("problem", key ? "The server does not know this API key." : "Enter an API key.");
  byId("key").setAttribute("aria-invalid", String(key !== ""));
  byId("key").select();
}

async function problemOf(response) {
  const status = `The server answered with status ${response.status}.`;
  try {
    const body = await response.json();
    return body.error?.message ?? body.error ?? status;
  } catch {
    return status;
  }
}

function showProblem(error) {
  const gone = error instanceof TypeError;
  const text = gone ? "The server cannot be reached. It may have ended." : String(error.message);
  say("problem", text.charAt(0).toUpperCase() + text.slice(1));
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
    this.begun = false;
    this.timings = {}; // the server's newest: the one source of every count and rate
    this.finish = null;
  }

  take(chunk) {
    if (chunk.error) throw new Error(chunk.error.message ?? String(chunk.error));
    const own = chunk.slipstream ?? {};
    const choice = chunk.choices?.[0];
    const tokens = own.tokens ?? [[choice?.delta?.content ?? "", false]];
    for (const [text, drafted] of tokens) this.transcript.add(text, drafted);
    if (!this.begun && !this.empty) {
      this.begun = true;
      say("status", "Writing …");
    }
    this.finish = choice?.finish_reason ?? this.finish;
    if (chunk.speculative) showEffect(chunk.speculative);
    if (chunk.seed != null) say("seed-used", String(chunk.seed));
    if (chunk.timings) this.show(chunk.timings);
  }

  show(timings) {
    this.timings = timings;
    showFigures(timings);
    showChart(timings.reached_at ?? [], timings.accepted_at ?? []);
  }

  get empty() {
    return this.transcript.text === "";
  }

  end(note) {
    this.transcript.draw();
    if (this.empty) {
      say("status", `${note}. Your message is in the field again.`);
      return;
    }
    conversation.push({ role: "assistant", content: this.transcript.text });
    const atEnd = this.transcript.atEnd();
    const { predicted_n: tokens = 0, draft_n_accepted: accepted = 0 } = this.timings;
    say("status", `${note}: ${tokens} tokens, ${accepted} of them accepted draft tokens.`);
    if (atEnd) this.transcript.follow(); // the line above may have become two
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
    if (!response.ok) {
      throw Object.assign(new Error(await problemOf(response)), { status: response.status });
    }
    for await (const chunk of events(response)) answer.take(chunk);
    note = ENDINGS[answer.finish] ?? "Reply finished";
  } catch (error) {
    if (controller.signal.aborted) note = "Reply stopped";
    else if (error.status === 401) askForKey();
    else showProblem(error);
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
  if (conversation.length === 0) byId("empty").hidden = false;
  if (byId("message").value === "") byId("message").value = text;
}

function stop() {
  running?.abort();
}

function newChat() {
  stop();
  running = null;
  conversation.length = 0;
  for (const article of document.querySelectorAll("article")) article.remove();
  byId("empty").hidden = false;
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
