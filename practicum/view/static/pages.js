"use strict";
(() => {
  const status = () => document.getElementById("status");
  const say = (text) => { const line = status(); if (line) { line.textContent = text; line.hidden = !text; } };
  // A page in the background does not reload its parts.
  document.addEventListener("htmx:before:request", (event) => {
    if (document.hidden && event.detail.ctx.request.method === "GET") event.preventDefault();
  });
  const away = (event) => {
    const asks = event.detail.ctx.request.method === "GET";
    say(asks ? "The service does not respond. This page tries again every few seconds."
      : "The service does not respond: the decision was not saved. Try again.");
  };
  document.addEventListener("htmx:error", away);
  document.addEventListener("htmx:response:error", (event) => { if (event.detail.ctx.response.status >= 500) away(event); });
  document.addEventListener("htmx:after:swap", () => say(""));

  const tab = document.querySelector(".tabs a[aria-current]");
  if (tab) tab.parentElement.parentElement.parentElement.scrollLeft = tab.offsetLeft - 40;

  // Keyboard shortcuts of the review page.
  const cards = () => [...document.querySelectorAll(".decision")];
  let at = 0;
  const go = (to) => {
    const all = cards();
    if (!all.length) return;
    at = Math.min(Math.max(to, 0), all.length - 1);
    all[at].focus();
    all[at].scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("focusin", (event) => {
    const card = event.target.closest(".decision");
    if (card) at = cards().indexOf(card);
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !cards().length) return;
    if (event.key === "Escape" && event.target.closest(".decision input")) { go(at); return; }
    if (event.target.closest("input, select, textarea")) return;
    const here = document.activeElement.closest(".decision");
    const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); go(here ? at + step : at); return; }
    const control = here && here.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (!control) return;
    event.preventDefault();
    if (control.matches("button")) control.click(); else control.focus();
  });
  // The decision has replaced the card: select the decision, so that the keys keep working.
  document.addEventListener("htmx:after:swap", () => {
    if (cards().length && document.activeElement === document.body) go(at);
  });
})();
