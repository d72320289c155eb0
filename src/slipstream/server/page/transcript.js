// One message of the conversation, drawn while it is written.
// Everything that is said is put in as text nodes; nothing here parses HTML.

import { byId } from "./figures.js";

const FENCE = /^ {0,3}```/;
const CLOSING = /^ {0,3}```\s*$/;

export class Transcript {
  constructor(role, title) {
    byId("empty").hidden = true;
    this.article = document.createElement("article");
    this.article.className = role;
    const heading = document.createElement("h2");
    heading.textContent = title;
    this.article.append(heading);
    byId("transcript").append(this.article);
    this.text = "";
    this.waiting = [];
    this.frame = 0;
    this.line = "";
    this.opening = false; // whether that line begins a block of code
    this.parts = []; // the elements of the line that is being written
    this.openBlock("p");
    this.follow();
  }

  openBlock(kind) {
    this.block = document.createElement(kind);
    this.article.append(this.block);
    this.run = null;
  }

  // The composer may lie over the end of the page.
  follow() {
    this.article.style.scrollMarginBottom = `${byId("composer").offsetHeight}px`;
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
      for (const part of text.split(/(?<=\n)/)) this.write(part, drafted ? "drafted" : "");
    }
    if (atEnd) this.follow();
  }

  // A part of one line; runs of one kind share an element.
  write(part, name) {
    if (this.run === null || this.run.className !== name) {
      this.run = document.createElement("span");
      this.run.className = name;
      this.block.append(this.run);
      this.parts.push(this.run);
    }
    this.run.append(part);
    this.run.normalize();
    this.line += part;
    if (this.block.tagName === "P" && FENCE.test(this.line)) this.beginCode();
    if (part.endsWith("\n")) this.endLine();
  }

  // The line turns out to begin a block of code: it moves there, as it is.
  beginCode() {
    const [run, before] = [this.run, this.block];
    this.openBlock("pre");
    this.block.append(...this.parts);
    this.run = run;
    this.opening = true;
    if (before.textContent === "") before.remove();
  }

  endLine() {
    const closes = this.block.tagName === "PRE" && !this.opening && CLOSING.test(this.line);
    if (closes) this.openBlock("p");
    this.opening = false;
    this.run = null;
    this.line = "";
    this.parts = [];
  }
}
