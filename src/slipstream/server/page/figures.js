// What a reply costs: its figures, and how many drafts were accepted by position.

const SVG = "http://www.w3.org/2000/svg";
const MOST_BARS = 16;

export const byId = (id) => document.getElementById(id);

export function say(id, text) {
  byId(id).textContent = text;
}

function percent(part) {
  return `${Math.round(100 * part)} %`;
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

// Of the drafts that reached a position, those accepted there.
export function showChart(reached, accepted) {
  const rates = reached.map((count, i) => (accepted[i] ?? 0) / count);
  const shown = rates.slice(0, MOST_BARS);
  const width = 320 / Math.max(shown.length, 6);
  const titles = shown.map((rate, i) => `${i + 1}: ${percent(rate)} of ${reached[i]}`);
  byId("chart").replaceChildren(...shown.map((rate, i) => bar(rate, i, width, titles[i])));
  const more = rates.length > shown.length ? ", .." : "";
  say("chart-text", titles.length ? `${titles.join(", ")}${more}` : "No drafts yet.");
}

export function showFigures(timings) {
  const tokens = timings.predicted_n ?? 0;
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
  const rate = drafted ? percent(accepted / drafted) : "";
  say("drafts", drafted ? `${accepted} of ${drafted} accepted (${rate})` : "none");
  say("brief", `${byId("speed").textContent}${drafted ? `, ${rate} accepted` : ""}`);
}

// Who drafts, with the parameters that are not at rest.
export function showEffect(effect) {
  const { type, ...rest } = effect;
  const parameters = Object.entries(rest)
    .filter(([, value]) => value !== null && value !== 0)
    .map(([name, value]) => `${name} ${value}`);
  say("in-effect", [type || "none", ...parameters].join(" · "));
}

export function clearFigures() {
  for (const id of ["in-effect", "speed", "first-token", "tokens", "drafts", "seed-used"]) say(id, "–");
  say("brief", "");
  showChart([], []);
}
