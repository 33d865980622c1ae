"use strict";
(() => {
  const root = document.documentElement, themes = ["auto", "light", "dark"];
  // Browsers may refuse storage to pages in files. In that case the choice lasts until the page is closed.
  const stored = () => { try { return localStorage.getItem("practicum-theme"); } catch { return null; } };
  const keep = (theme) => { try { localStorage.setItem("practicum-theme", theme); } catch { /* see above */ } };
  let theme = themes.includes(stored()) ? stored() : "auto";
  const show = () => { root.dataset.theme = theme; };
  show();
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const label = () => { button.textContent = { auto: "◐ auto", light: "☀ light", dark: "☾ dark" }[theme]; };
    button.hidden = false;
    label();
    button.addEventListener("click", () => {
      theme = themes[(themes.indexOf(theme) + 1) % themes.length];
      keep(theme); show(); label();
    });
    for (const all of document.querySelectorAll("[data-unfold]")) {
      all.hidden = false;
      all.addEventListener("click", () => {
        const folds = [...document.querySelectorAll("main details")], open = folds.some((fold) => !fold.open);
        for (const fold of folds) fold.open = open;
      });
    }
    const search = document.querySelector("input[type=search]");
    // A page in a file has no server that answers the search form: search the rows of this page.
    const list = document.querySelector("[data-rows]");
    if (search && search.dataset.here !== undefined && list) {
      const rows = list.tBodies ? list.tBodies[0].rows : list.children;
      search.form.addEventListener("submit", (event) => event.preventDefault());
      search.addEventListener("input", () => {
        const search_text = search.value.toLowerCase();
        for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(search_text);
      });
    }
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, pre")) return;
      const rel = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
      const link = rel && document.querySelector(`a[rel="${rel}"]`);
      if (link) link.click();
      if (event.key === "/" && search) { event.preventDefault(); search.focus(); }
    });
  });
})();
